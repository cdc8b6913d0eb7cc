"""What a page gets: a request, and what it reads or acts with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.dashboard.access import VERBS
from rota.dashboard.html import Lists, redirect, render, send_json
from rota.errors import UsageError

if TYPE_CHECKING:
    from rota.app import App
    from rota.client.session import Session
    from rota.dashboard.kept import Memory
    from rota.dashboard.request import Request, Response

SAID_MAX = 300


class Forbidden(UsageError):
    """Who asks may not do this."""


@dataclass(frozen=True, slots=True)
class Look:
    """A request to read."""

    opened: Session
    request: Request
    app: App
    memory: Memory

    def show(
        self, template: str, title: str, facts: dict[str, Any], refused: str = "", **more: Any
    ) -> Response:
        """Return a page; or its facts as JSON, if that is asked for. `facts` are for JSON and the
        template by the same names, `more` only for the template. `refused` says why a form was:
        the page has the form as it was filled in."""
        status = 400 if refused else 200
        if self.request.wants_json:
            return send_json({"error": refused, "more": None} if refused else facts, status)
        now = self.opened.read_clock()
        is_live = self.request.method == "GET" and not refused
        known = {"title": title, "now": now, "lists": Lists(now, self.request.url)}
        shown: dict[str, Any] = {"is_live": is_live, "refused": refused, **facts, **more, **known}
        return render(self.request, template, status=status, **shown)

    def read(self, name: str) -> str | None:
        """Return a value of the query; None: it is empty, or not there."""
        return self.request.query.get(name, "").strip() or None

    def read_number(self, name: str, default: int, most: int) -> int:
        """Return a whole number of the query, 1 … most. Raises UsageError."""
        text = self.read(name)
        return default if text is None else _number(name, text, 1, most)


@dataclass(frozen=True, slots=True)
class Act:
    request: Request
    app: App
    memory: Memory

    def begin(self, verb: str) -> dict[str, Any]:
        """Return who acts, and why. Raises Forbidden, or UsageError if no reason is given."""
        assert verb in VERBS, verb
        refuse_without(self.request, verb)
        why = self.read("why")
        if why is None:
            raise UsageError("an action needs a reason: who looks at the audit log wants to know")
        return {"why": why, "by": self.request.access.who}

    def read(self, field: str) -> str | None:
        """Return a field of the form, without blanks around it; None: it is empty, or not there."""
        return (self.request.form.get(field) or [""])[0].strip() or None

    def need(self, field: str) -> str:
        value = self.read(field)
        if value is None:
            raise UsageError(f"the form has no {field}")
        return value

    def read_number(self, field: str, least: int, most: int) -> int:
        return _number(field, self.read(field), least, most)

    def back(self, said: str) -> Response:
        """Return to the page that the form was on, and say how the action ended."""
        path, query = self.request.back
        return self.go(path, said, **query)

    def go(self, path: str, said: str, **query: str) -> Response:
        return redirect(self.request, self.request.url(path, **query), said[:SAID_MAX])


def refuse_without(request: Request, verb: str) -> None:
    """Raise Forbidden for who may not do this."""
    if verb not in request.access.verbs:
        raise Forbidden(f"{request.access.who} may look, but not {verb}")


def _number(name: str, text: str | None, least: int, most: int) -> int:
    if (
        text is None
        or not (text.isascii() and text.isdecimal())
        or not (least <= int(text[:20]) <= most)
    ):
        raise UsageError(f"{name} must be a whole number from {least:,} to {most:,}")
    return int(text)
