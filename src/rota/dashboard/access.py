"""Who may see the pages, and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

VERBS = frozenset(
    {
        "archive", "cancel", "discard", "enqueue", "limit", "pause", "reset", "resolve", "resume",
        "retry", "trigger",
    }
)  # fmt: skip
_PORTS = (80, 443)
"""The default ports of http and https: a browser leaves them out, and a proxy may add its own."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who somebody is, and what he may do."""

    who: str
    """Stands in the audit log of each action."""
    verbs: frozenset[str] = VERBS
    """What may be done: some of `VERBS`, or nothing, to look only. Defaults to everything."""


Authorize = Callable[[Any], Access | None]
"""Returns the access of a request, by the `scope` of ASGI or the `environ` of WSGI; None: none."""


def find_access(
    authorize: Authorize | None, scope: Any, peer: str | None, host: str
) -> Access | None:
    """Return what a request may do; None: nothing. Without `authorize` only somebody on this
    machine may look, and not through a stranger's page whose name leads to this machine."""
    if authorize is None:
        is_here = _is_here(peer) and _is_here(_split(f"//{host}").hostname)
        return Access("somebody here", frozenset()) if is_here else None
    found = authorize(scope)
    # Only a real answer counts: a coroutine that nobody awaits, or a True, is none.
    return found if isinstance(found, Access) else None


def is_from_here(headers: Mapping[str, str]) -> bool:
    """Return whether a page of this site has sent a form, and no stranger's page."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = headers.get("origin", ""), f"//{headers.get('host', '')}"
    return _find_place(origin) == _find_place(host) is not None


def _find_place(url: str) -> tuple[str, int | None] | None:
    """Return host and port, with None for a default port; None: it has no host."""
    parts = _split(url)
    try:
        port = None if parts.port in _PORTS else parts.port
        return (parts.hostname, port) if parts.hostname else None
    except ValueError:  # a port that is no number
        return None


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # a bracket that is not closed
        return urlsplit("")


def _is_here(name: str | None) -> bool:
    try:
        return name == "localhost" or (name is not None and ip_address(name).is_loopback)
    except ValueError:
        return False
