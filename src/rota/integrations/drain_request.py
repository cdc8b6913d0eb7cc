"""Checks and answers drain requests over HTTP, for ASGI and WSGI."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.declare.config import Queues, WorkerConfig
from rota.errors import ConfigurationError, DatabaseUnavailable, RotaError
from rota.model.units import Duration
from rota.model.units import seconds as in_seconds
from rota.worker.summary import Summary

logger = logging.getLogger("rota")

SECRET_LEAST = 16
"""Fewest characters of a secret: a shorter one could be guessed by trying."""
SECONDS_MOST = 3600.0
RETRY_AFTER_S = 60


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """An answer over HTTP."""

    status: int
    value: Any
    """The body, in JSON; None: no body."""
    more_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that only this response has."""

    @property
    def body(self) -> bytes:
        return b"" if self.value is None else msgspec.json.encode(self.value) + b"\n"

    @property
    def headers(self) -> dict[str, str]:
        """All headers but Content-Length."""
        return {
            "content-type": "application/json",
            "cache-control": "no-store",
            **self.more_headers,
        }

    def encode(self, method: str) -> tuple[dict[str, str], bytes]:
        """Return all headers and the body of the answer; for HEAD no body and no content-length."""
        if method == "HEAD":
            return self.headers, b""
        return {**self.headers, "content-length": str(len(self.body))}, self.body


BUSY = DrainAnswer(202, {"state": "busy"})
STOPPING = DrainAnswer(
    503,
    {"error": {"type": "Stopping", "message": "the server is going down"}},
    {"retry-after": str(RETRY_AFTER_S)},
)


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """What a caller must send, and the options of the drain."""

    secret: bytes
    config: WorkerConfig

    @classmethod
    def check(
        cls,
        secret: str,
        max_time: Duration,
        grace: Duration,
        queues: Queues | None,
        concurrency: int,
        reserved: int | None,
    ) -> DrainRequest:
        """Check the options of `drain_endpoint`, with its errors."""
        if not _is_secret(secret):
            raise ConfigurationError(
                f"drain_endpoint(secret=…) must be at least {SECRET_LEAST} printable ASCII "
                "characters without a space"
            )
        within_s = in_seconds(max_time, name="max_time", least=1.0, most=SECONDS_MOST)
        grace_s = in_seconds(grace, name="grace", most=SECONDS_MOST)
        times = {"drain_for_s": within_s, "stop_after_s": within_s, "grace_s": grace_s}
        config = WorkerConfig.make(queues, concurrency, reserved, drain=True, **times)
        return cls(secret.encode(), config)

    def refuse(self, method: str | None, authorization: bytes | None) -> DrainAnswer | None:
        """Return the answer to a request that starts no drain; None: the request may start it."""
        if method not in ("GET", "POST", "HEAD"):
            return DrainAnswer(405, {"error": "ask with GET or POST"}, {"allow": "GET, POST, HEAD"})
        scheme, _, secret = (authorization or b"").partition(b" ")
        is_bearer = scheme.lower() == b"bearer"  # in any case, RFC 9110, 11.1
        if not (is_bearer and hmac.compare_digest(secret, self.secret)):
            error = {"error": "the secret is missing or wrong"}
            return DrainAnswer(401, error, {"www-authenticate": "Bearer"})
        return DrainAnswer(200, None) if method == "HEAD" else None


def report(summary: Summary) -> DrainAnswer:
    return DrainAnswer(200, {"state": "done", **msgspec.to_builtins(summary)})


def explain(error: RotaError) -> DrainAnswer:
    """Return the answer after a failed drain, and log what a person has to repair."""
    value = {"error": {"type": type(error).__name__, "message": str(error)}}
    if isinstance(error, DatabaseUnavailable):
        return DrainAnswer(503, value, {"retry-after": str(RETRY_AFTER_S)})
    logger.error("drain endpoint: %s", error)
    return DrainAnswer(500, value)


def _is_secret(given: object) -> bool:
    return (
        isinstance(given, str)
        and len(given) >= SECRET_LEAST
        and given.isascii()
        and given.isprintable()
        and " " not in given
    )
