"""An HTTP endpoint that drains, for platforms whose only cron is a URL, and the lifespan of a site.

The endpoint is an ASGI application of its own and needs no framework.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from rota.app import App
from rota.declare.config import SLOTS, Queues
from rota.errors import RotaError
from rota.integrations.drain_request import (
    BUSY,
    STOPPING,
    DrainAnswer,
    DrainRequest,
    explain,
    report,
)
from rota.model.units import Duration, seconds
from rota.worker.summary import Summary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("rota")


def lifespan(
    app: App, *, run_worker: bool = False, grace: Duration = "5s"
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return the lifespan of a site: `FastAPI(lifespan=asgi.lifespan(app))`. Starlette takes
    it too, and Litestar in a list.

    At the end of the site the connections of `app` are closed.

    Args:
        run_worker: whether a worker runs on the loop of the site meanwhile, with the defaults of
            `App.run` and without signals. It is for development: a handler that blocks the loop
            blocks the site too. If the worker fails, the log says so and the site continues.
            Defaults to False.
        grace: how long handlers may continue when the site ends, before their jobs return to the
            queue. Defaults to 5 s.

    Raises:
        UsageError: `grace` is no duration.
    """
    grace_s = seconds(grace, name="grace")

    @asynccontextmanager
    async def open_app(_: Any) -> AsyncIterator[None]:
        worker = None
        if run_worker:
            worker = asyncio.create_task(app.arun(grace=timedelta(seconds=grace_s)))
            worker.add_done_callback(_log_end)
        try:
            yield
        finally:
            if worker is not None:
                worker.cancel()
                await asyncio.wait([worker])
            await app.aclose()

    return open_app


def drain_endpoint(
    app: App,
    *,
    secret: str,
    max_time: Duration = "25s",
    grace: Duration = "5s",
    queues: Queues | None = None,
    concurrency: int = SLOTS,
    reserved: int | None = None,
) -> DrainEndpoint:
    """Return an ASGI application that drains `app` on a request: GET or POST with
    `Authorization: Bearer SECRET`.

    Args:
        secret: what the caller must send, at least 16 characters.
        max_time: stop claiming after this time, 1 s … 1 h. Keep the sum of this and `grace` below
            the longest request that the platform permits.
        grace: how long running handlers may then continue before their jobs return to the queue.
        queues: names, which share `concurrency`; or slots by name. Defaults to every queue of the
            App's types plus `default`, sharing `concurrency`.
        concurrency: most jobs at once over all queues without slots of their own. Defaults to 10.
        reserved: how many of the slots only jobs with a priority above 0 may take; 0: none.
            Defaults to ROTA_RESERVED, otherwise to one in five, at least one of two.

    Raises:
        ConfigurationError: the secret is too short, or has characters that a header cannot have.
        UsageError: a time, a queue or the number of slots is out of range.
    """
    request = DrainRequest.check(secret, max_time, grace, queues, concurrency, reserved)
    return DrainEndpoint(app, request)


class DrainEndpoint:
    """What `drain_endpoint` returns. One drain at a time in this process; a drain continues to its
    end if the caller disconnects."""

    def __init__(self, app: App, request: DrainRequest) -> None:
        self._app = app
        self._request = request
        self._drain: asyncio.Task[Summary] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        method, headers = scope["method"], scope["headers"]
        given = [value for name, value in headers if name.lower() == b"authorization"]
        refusal = self._request.refuse(method, given[0] if len(given) == 1 else None)
        if refusal is not None:
            await _say(send, refusal, method)
        elif self._drain is not None and not self._drain.done():
            await _say(send, BUSY, method)
        else:
            draining = self._app._drain_by_request(self._request.config)
            self._drain = drain = asyncio.create_task(draining)
            drain.add_done_callback(_log_failure)
            leaving = asyncio.create_task(_wait_for_disconnect(receive))
            try:
                await asyncio.wait([drain, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
            if drain.done():  # otherwise the caller has left, and it continues
                await _say(send, _outcome(drain), method)

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
        """Stop a running drain in order: its jobs have the grace period, then return to the queue.

        For an application that mounts this endpoint: a server shuts down only the application that
        it runs.
        """
        drain = self._drain
        if drain is not None and not drain.done():
            drain.cancel()
            await asyncio.wait([drain])


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive()).get("more_body"):  # the body is ignored
        pass
    if (await receive())["type"] != "http.disconnect":
        # No server sends anything else here. One that does must not be asked in a loop.
        await asyncio.Event().wait()


def _outcome(drain: asyncio.Task[Summary]) -> DrainAnswer:
    try:
        return report(drain.result())
    except RotaError as error:
        return explain(error)
    except asyncio.CancelledError:
        return STOPPING


def _log_failure(drain: asyncio.Task[Summary]) -> None:
    """Log an unexpected failure of a drain, also if its caller has left."""
    error = None if drain.cancelled() else drain.exception()
    if error is not None and not isinstance(error, RotaError):
        logger.error("drain endpoint: the drain failed", exc_info=error)


def _log_end(worker: asyncio.Task[Summary]) -> None:
    """Log why a worker ended before its site."""
    if not worker.cancelled() and (error := worker.exception()) is not None:
        stack = None if isinstance(error, RotaError) else error
        logger.error("the worker of this site has ended: %s", error, exc_info=stack)


async def _say(send: Send, answer: DrainAnswer, method: str) -> None:
    headers, body = answer.encode(method)
    listed = [(name.encode(), text.encode()) for name, text in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
