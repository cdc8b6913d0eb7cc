"""Calls to a URL that the operator gave: a webhook, a dead-man switch. Such a URL is a secret:
errors and log lines show only its host."""

from __future__ import annotations

import asyncio
import http.client
import logging
import urllib.error
import urllib.request
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from rota.runtime.loop import call_in_thread

logger = logging.getLogger("rota")

ANSWER_S = 5.0
"""Longest time to connect, and longest time for the answer, in seconds."""
CALL_S = 10.0
"""Longest time for a call, in seconds: names may resolve slowly, or an answer come byte by byte."""


class CallFailed(Exception):
    """The URL did not answer with 2xx. The text shows only its host."""


class CallRefused(CallFailed):
    """It answered with another status: the request itself may be at fault."""


def host(url: str) -> str:
    return urlsplit(url).hostname or "?"


def call(url: str, body: bytes | None = None) -> None:
    """GET a URL, or POST JSON to it. May block for longer than CALL_S.

    Certificates are checked. Redirects are not followed: they could lead anywhere. Raises
    CallRefused for an answer with another status than 2xx, and CallFailed without an answer.
    """
    headers = {"User-Agent": "rota", "Connection": "close"} | (
        {} if body is None else {"Content-Type": "application/json"}
    )
    request = urllib.request.Request(url, body, headers, method="GET" if body is None else "POST")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=ANSWER_S):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise CallRefused(f"{host(url)} answered {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallFailed(f"{host(url)} {_describe(error)}") from None


async def acall(url: str, body: bytes | None = None) -> None:
    """`call` from a loop, within CALL_S. Raises CallFailed."""
    try:
        async with asyncio.timeout(CALL_S):
            await call_in_thread(partial(call, url, body), "rota-call")
    except TimeoutError:
        raise CallFailed(f"{host(url)} did not answer within {CALL_S:g} s") from None


async def aping(url: str) -> None:
    """Report success to a dead-man switch, within CALL_S. A failure is logged."""
    try:
        await acall(url)
    except CallFailed as error:
        logger.warning("ping: %s; the work itself succeeded", error)


def ping(url: str) -> None:
    asyncio.run(aping(url))


def _describe(error: Exception) -> str:
    """Say what failed without any part of the URL, which texts of the library may quote."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"did not answer within {ANSWER_S:g} s"
    text = reason.strerror if isinstance(reason, OSError) else None
    return f"gave no answer: {text or type(reason).__name__}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
