"""An HTTP endpoint that drains, for platforms whose only cron is a URL.

It is an ASGI application of its own and needs no framework.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from rota.app import App
from rota.declare.config import SLOTS, WorkerConfig
from rota.errors import ConfigurationError, DatabaseUnavailable, RotaError, UsageError
from rota.model.units import Duration
from rota.model.units import seconds as in_seconds
from rota.worker.summary import Summary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Mapping[str, str]

logger = logging.getLogger("rota")

SECRET_LEAST = 16
"""Fewest characters: a shorter secret could be guessed by trying."""
SECONDS_MOST = 3600.0
RETRY_AFTER_S = 60


def tick(
    app: App,
    *,
    secret: str,
    seconds: float = 25,
    grace: Duration = "5s",
    queues: Mapping[str, int] | None = None,
    slots: int = SLOTS,
) -> DrainEndpoint:
    """Return an ASGI application that drains `app` on a request: GET or POST with
    `Authorization: Bearer SECRET`.

    Args:
        secret: what the caller must send, at least 16 characters.
        seconds: stop claiming after this time, 1 … 3,600. Keep the sum of this and `grace` below
            the longest request that the platform permits.
        grace: how long running handlers may then continue before their jobs are handed back.
        queues: slots by queue. Defaults to every queue of the App's types plus `default`, sharing
            `slots`.
        slots: most jobs at once over all queues; only without `queues`. Defaults to 10.

    Raises:
        ConfigurationError: the secret is too short, or has characters that a header cannot have.
        UsageError: a time, a queue or the number of slots is out of range.
    """
    if not _is_secret(secret):
        raise ConfigurationError(
            f"tick(secret=…) must be at least {SECRET_LEAST} printable ASCII characters "
            "without a space"
        )
    if not _is_time(seconds):
        raise UsageError(
            f"tick(seconds=…) must be a number from 1 to {SECONDS_MOST:.0f}, not {seconds!r}"
        )
    config = WorkerConfig(
        queues=None if queues is None else dict(queues),
        slots=slots,
        drain=True,
        grace_s=in_seconds(grace, name="grace", most=SECONDS_MOST),
    )
    return DrainEndpoint(app, secret, float(seconds), config)


def _is_secret(given: object) -> bool:
    return (
        isinstance(given, str)
        and len(given) >= SECRET_LEAST
        and given.isascii()
        and given.isprintable()
        and " " not in given
    )


def _is_time(given: object) -> bool:
    return (
        isinstance(given, int | float)
        and not isinstance(given, bool)
        and 1 <= given <= SECONDS_MOST
    )


class DrainEndpoint:
    """What `tick` returns. One drain at a time in this process; it continues to its end if the
    caller disconnects."""

    def __init__(self, app: App, secret: str, within_s: float, config: WorkerConfig) -> None:
        self._app = app
        self._secret = secret.encode()
        self._within_s = within_s
        self._config = config
        self._drain: asyncio.Task[Summary] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "POST", "HEAD"):
            await _say(
                send, 405, {"error": "ask with GET or POST"}, {"allow": "GET, POST, HEAD"}, method
            )
        elif not self._is_allowed(scope["headers"]):
            await _say(
                send,
                401,
                {"error": "the secret is missing or wrong"},
                {"www-authenticate": "Bearer"},
                method,
            )
        elif method == "HEAD":
            await _say(send, 200, None, {}, method)  # HEAD starts nothing
        elif self._drain is not None and not self._drain.done():
            await _say(send, 202, {"state": "busy"}, {}, method)
        else:
            drain = self._begin()
            await _wait_for_end_or_caller(drain, receive)
            if drain.done():
                await _say(send, *_outcome(drain), method)

    def _is_allowed(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name.lower() == b"authorization"]
        scheme, _, secret = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        is_bearer = scheme.lower() == b"bearer"  # in any case, RFC 9110, 11.1
        return is_bearer and hmac.compare_digest(secret, self._secret)

    def _begin(self) -> asyncio.Task[Summary]:
        self._drain = drain = asyncio.create_task(
            self._app._drain_within(self._within_s, self._config)
        )
        drain.add_done_callback(_log_failure)
        return drain

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def aclose(self) -> None:
        """Stop a running drain in order: its jobs have the grace period, then are handed back.

        For an application that mounts this one: servers send their shutdown only to the outermost
        application.
        """
        drain = self._drain
        if drain is not None and not drain.done():
            drain.cancel()
            await asyncio.wait([drain])


async def _wait_for_end_or_caller(drain: asyncio.Task[Summary], receive: Receive) -> None:
    """Wait for the end of the drain, or until the caller disconnects; the drain continues then."""
    leaving = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait([drain, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive()).get("more_body"):  # the body is ignored
        pass
    if (await receive())["type"] != "http.disconnect":
        # No server sends anything else here. One that does must not be asked in a loop.
        await asyncio.Event().wait()


def _outcome(drain: asyncio.Task[Summary]) -> tuple[int, Any, Headers]:
    try:
        return 200, {"state": "done", **msgspec.to_builtins(drain.result())}, {}
    except DatabaseUnavailable as error:
        return 503, _error(error), {"retry-after": str(RETRY_AFTER_S)}
    except RotaError as error:
        logger.error("tick: %s", error)  # noqa: TRY400 - it says what is wrong and what to do
        return 500, _error(error), {}
    except asyncio.CancelledError:
        return (
            503,
            {"error": {"type": "Stopping", "message": "the server is going down"}},
            {"retry-after": str(RETRY_AFTER_S)},
        )


def _log_failure(drain: asyncio.Task[Summary]) -> None:
    """Log an unexpected failure of the drain, even if no caller waits for it any more."""
    if (
        not drain.cancelled()
        and (error := drain.exception()) is not None
        and not isinstance(error, RotaError)
    ):
        logger.error("tick: the drain failed", exc_info=error)


def _error(error: RotaError) -> Any:
    return {"error": {"type": type(error).__name__, "message": str(error)}}


async def _say(send: Send, status: int, value: Any, headers: Headers, method: str) -> None:
    body = b"" if value is None else msgspec.json.encode(value) + b"\n"
    given = {"content-type": "application/json", "cache-control": "no-store", **headers}
    if method != "HEAD":
        given["content-length"] = str(len(body))
    listed = [(name.encode(), text.encode()) for name, text in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
