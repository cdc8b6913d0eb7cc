"""Makes pages: the templates, and how values are written in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zlib import crc32

import jinja2
from markupsafe import Markup

from rota.cli.listing import Field
from rota.cli.output import Times, json_line
from rota.cli.table import Kind
from rota.dashboard.charts import draw, draw_lines
from rota.dashboard.request import SAID, Request, Response
from rota.dashboard.sparks import draw_batch
from rota.model.units import age, words

if TYPE_CHECKING:
    from rota.cli.listing import Listing

CELL_MAX = 300
TEXT_MAX = 65_536
_TONES = {
    "queued": "plain", "waiting": "plain", "running": "live", "failed": "warn", "dead": "bad",
    "succeeded": "good", "cancelled": "plain", "bad": "bad", "critical": "bad", "warn": "warn",
    "warning": "warn", "open": "bad", "trial": "warn", "closed": "good", "active": "good",
    "paused": "warn", "failing": "bad", "overdue": "bad", "holds": "warn", "alive": "good",
    "silent": "bad", "gone": "bad", "stopped": "plain", "uncertain": "bad", "done": "good",
    "intended": "live",
}  # fmt: skip


def render(
    request: Request, template: str, *, status: int = 200, is_live: bool = False, **context: Any
) -> Response:
    """Return a page. One that is live asks for itself again and again, in a browser."""
    text = (
        _environment()
        .get_template(template)
        .render(request=request, url=request.url, access=request.access, is_live=is_live, **context)
    )
    is_said = request.said and "hx-request" not in request.headers
    more = [keep_said(request, "", 0)] if is_said else []
    return _respond(status, "text/html; charset=utf-8", text.encode("utf-8", "replace"), *more)


def explain(request: Request, status: int, what: str, more: str = "") -> Response:
    """Return a page, or JSON, that says what went wrong."""
    if request.wants_json:
        return send_json({"error": what, "more": more or None}, status)
    return render(request, "error.html", status=status, title=what, more=more)


def send_json(facts: dict[str, Any], status: int = 200) -> Response:
    """Return facts as JSON, with the names of `--json`."""
    return _respond(status, "application/json", json_line(facts).encode())


def redirect(request: Request, url: str, said: str) -> Response:
    """Send the browser to a page of this site, which says something."""
    return _respond(303, "text/plain", b"", ("Location", url), keep_said(request, quote(said), 60))


def keep_said(request: Request, text: str, seconds: int) -> tuple[str, str]:
    """Return the header that keeps a word for the next page."""
    where = request.prefix or "/"
    value = f"{SAID}={text}; Path={quote(where)}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return "Set-Cookie", value


def _respond(status: int, kind: str, body: bytes, *headers: tuple[str, str]) -> Response:
    length = ("Content-Length", str(len(body)))
    return Response(status, body, (("Content-Type", kind), length, *headers))


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rota.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["places"] = PLACES
    made.filters |= {
        "when": show_when, "words": words, "badge": show_badge, "cut": cut, "draw": draw,
        "draw_lines": draw_lines, "code": mark_code, "tone": find_tone, "far": draw_batch,
    }  # fmt: skip
    return made


def compile_templates() -> None:
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)


def cut(value: object, most: int = TEXT_MAX) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def show_when(at: datetime | None, now: datetime) -> Markup | str:
    """Write an instant as an age, with the instant behind it."""
    if at is None:
        return ""
    instant = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        instant.isoformat(), f"{instant:%Y-%m-%d %H:%M:%S} UTC", age((now - at).total_seconds())
    )


def mark_code(text: str) -> Markup:
    """Write a text in which commands stand between backquotes."""
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if place % 2 else Markup("{}").format(part)
        for place, part in enumerate(parts)
    )


def find_tone(environment: str) -> str:
    """Return the colour of an environment: only production has the colour of danger."""
    if environment.lower().startswith("prod"):
        return "production"
    return f"tone-{crc32(environment.encode()) % TONES}"


TONES = 5


def show_badge(word: object) -> Markup:
    first = str(word).split(",")[0].split(" ")[0]
    return Markup('<span class="badge {}">{}</span>').format(_TONES.get(first, "plain"), word)


Target = tuple[str, dict[str, str]]
"""A path, with the fields of the row that stand in it; and a query, of fields by their names."""

_OF_ERROR = {"job_type": "job_type", "error_type": "error_type", "error": "message"}
LINKS: dict[str, Target] = {
    "id": ("/jobs/{id}", {}),
    "job": ("/jobs/{job}", {}),
    "last job": ("/jobs/{last_job}", {}),
    "type": ("/jobs", {"job_type": "job_type"}),
    "queue": ("/jobs", {"queue": "queue"}),
    "group": ("/jobs", {"group_key": "group_key"}),
    "schedules name": ("/schedules/{name}", {}),
    "batches batch": ("/batches/{id}", {}),
    "batches then": ("/jobs/{then_job}", {}),
    "batches jobs": ("/jobs", {"batch": "id"}),
    "types type": ("/jobs", {"job_type": "name"}),
    "errors error": ("/jobs", _OF_ERROR),
    "errors dead": ("/dead", _OF_ERROR),
}
"""Where a cell leads, by the title of its column, with the list's name if only there."""
PLACES = {
    "awaited": "/dead", "batches": "/batches", "breakers": "/breakers", "concurrency": "/queues",
    "dead": "/dead", "effects": "/effects", "groups": "/groups", "limits": "/limits",
    "oldest": "/queues", "paused": "/queues", "payloads": "/types", "queues": "/queues",
    "schedules": "/schedules", "types": "/types", "workers": "/workers",
}  # fmt: skip
"""The page of what a check of doctor is about."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Writes the lists of the command line as tables, with the same columns."""

    now: datetime
    url: Callable[..., str]

    def show(
        self,
        listed: Listing,
        rows: Sequence[Any],
        empty: str = "",
        more: Sequence[tuple[str, Callable[[Any], Markup]]] = (),
    ) -> Markup:
        """Write a list. A spare column without values is left out. `more`: columns behind the
        first, each with the function that writes a cell of a row."""
        fields = [Field(field) if isinstance(field, str) else field for field in listed.fields]
        times = Times(self.now)
        read = [[field.read(row, times) for field in fields] for row in rows]
        kept = [
            place
            for place, field in enumerate(fields)
            if not field.is_spare or any(values[place] not in (None, "") for values in read)
        ]
        cells = [
            [
                (
                    _CLASSES.get(fields[place].kind, ""),
                    self._cell(listed, fields[place], row, values[place]),
                )
                for place in kept
            ]
            for row, values in zip(rows, read, strict=True)
        ]
        heads = [(_CLASSES.get(fields[place].kind, ""), fields[place].title) for place in kept]
        heads[1:1] = [("", title) for title, _ in more]
        for row, written in zip(rows, cells, strict=True):
            written[1:1] = [("", write(row)) for _, write in more]
        template = _environment().get_template("table.html")
        return Markup(template.render(heads=heads, rows=cells, empty=empty or listed.empty))

    def _cell(self, listed: Listing, field: Field, row: Any, value: Any) -> Markup | str:
        shown = self._write(field, value)
        target = self._find_target(listed, field.title, row)
        if target is None or shown in ("", "0"):
            return shown
        return Markup('<a href="{}">{}</a>').format(target, shown)

    def _write(self, field: Field, value: Any) -> Markup | str:
        if value is None:
            return ""
        if isinstance(value, datetime):
            return show_when(value, self.now)
        if field.title in ("status", "state", "severity"):
            return show_badge(value)
        text = words(value.total_seconds()) if isinstance(value, timedelta) else str(value)
        return cut(text, CELL_MAX)

    def _find_target(self, listed: Listing, title: str, row: Any) -> str | None:
        target = LINKS.get(f"{listed.name} {title}") or LINKS.get(title)
        if target is None:
            return None
        read = row.get if isinstance(row, dict) else partial(getattr, row)
        path, query = target
        named = {name: read(name, None) for name in re.findall(r"\{(\w+)\}", path)}
        if None in named.values():
            return None
        asked = {name: read(field, None) for name, field in query.items()}
        if query and not any(asked.values()):
            return None
        return self.url(path.format(**named), **asked)


_CLASSES = {Kind.NUMBER: "number", Kind.TEXT: "wide", Kind.ERROR: "wide"}
