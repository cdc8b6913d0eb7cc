"""A request and a response, whatever the server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from rota.dashboard.access import Access

FORM_MAX = 256 * 1024
"""Most bytes of a form: a corrected payload is 64 kB, and a form writes a byte with up to three."""
FORM_S = 20.0
"""Longest time in which a form arrives, in seconds."""
SAID = "rota_said"
"""The cookie that carries a word from an action to the page after it."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    prefix: str
    """Where the dashboard is mounted, such as `/admin/jobs`; empty: at the root."""
    path: str
    """The path below the prefix, such as `/jobs/7`."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in small letters."""
    peer: str | None
    """The address of the client; None: the server does not say."""
    scope: Any
    """The scope of ASGI, or the environ of WSGI."""
    form: Mapping[str, list[str]] = field(default_factory=dict)
    """Empty until its body is read."""
    token: str = ""
    """Django's token, which it wants in each form and has checked in this; empty: no Django."""
    find_row: Callable[[int], str | None] = lambda _: None
    """Returns the address of a job's row in Django's admin; None: it has none."""
    environment: str = ""
    """Such as production or staging; empty: nobody said."""
    access: Access = field(default_factory=lambda: Access("nobody", frozenset()))
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def cost_ms(self) -> int:
        """How long the server has worked on it."""
        return round(1_000 * (time.perf_counter() - self.began_s))

    @property
    def wants_json(self) -> bool:
        """Whether it asks for the facts, and not for a page."""
        return "application/json" in self.headers.get("accept", "")

    @property
    def body_bytes(self) -> int | None:
        """How long its head says its body is; 0: it does not say; None: no number."""
        said = self.headers.get("content-length") or "0"
        return int(said[:20]) if said.isascii() and said.isdecimal() else None

    @property
    def may_be_long(self) -> bool:
        """Whether its body may go on after all that is read of it."""
        size = self.body_bytes
        return size is None or size > FORM_MAX or "transfer-encoding" in self.headers

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a page, below the prefix. A value that is None or empty is left out."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return quote(self.prefix + path) + (f"?{urlencode(given)}" if given else "")

    @property
    def said(self) -> str:
        """What the action before it has to say: a link of a stranger's cannot set it."""
        found = re.search(rf"(?:^|;\s*){SAID}=([^;]*)", self.headers.get("cookie", ""))
        return unquote(found[1]) if found else ""

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        """The page of this site that a form was on: its path and its query."""
        given = (self.form.get("back") or [self.query.get("back", "/")])[0]
        path, _, query = given.partition("?")
        if not path.startswith("/") or path.startswith(("//", "/\\")) or ".." in path:
            return "/", {}
        return path, read_query(query)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def read_query(text: str) -> dict[str, str]:
    """Read a query; of a name that comes twice the last value counts."""
    return dict(parse_qsl(text))


def read_form(content_type: str, body: bytes) -> dict[str, list[str]]:
    """Read a form as browsers send it; other content is an empty form."""
    form: dict[str, list[str]] = {}
    if content_type.partition(";")[0].strip() == "application/x-www-form-urlencoded":
        for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True):
            form.setdefault(name, []).append(value)
    return form
