"""The dashboard: it finds the page of a request, runs it, and says what went wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from rota.client.session import open_session
from rota.dashboard.access import Authorize, find_access, is_from_here
from rota.dashboard.html import compile_templates, explain
from rota.dashboard.kept import Memory
from rota.dashboard.look import Act, Forbidden, Look
from rota.dashboard.pages import GETS, POSTS, find_page
from rota.dashboard.request import FORM_MAX, FORM_S, Request, Response, read_form, read_query
from rota.errors import (
    BatchNotFound,
    DatabaseUnavailable,
    JobNotFound,
    RotaError,
    ScheduleNotFound,
    UsageError,
)

if TYPE_CHECKING:
    from rota.app import App

CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SAFE = (
    ("Content-Security-Policy", CONTENT_SECURITY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
)
STATIC = {
    "style.css": "text/css; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "rota.js": "text/javascript; charset=utf-8",
}
_MISSING = (BatchNotFound, JobNotFound, ScheduleNotFound)


def dashboard(
    app: App, *, authorize: Authorize | None = None, environment: str | None = None
) -> Dashboard:
    """Return the dashboard of an App, to be mounted in a site.

    With FastAPI: `api.mount("/admin/jobs", dashboard(app, authorize=…).asgi)`; in WSGI `.wsgi` is
    the application.

    Args:
        authorize: is called with the `scope` of ASGI or the `environ` of WSGI, in a thread; returns
            an `Access`, or None for who may see nothing. Without it, who comes from this machine
            may look, and nobody else.
        environment: what stands at the top of each page, such as "production" or "staging".
            Defaults to ROTA_ENVIRONMENT, otherwise to nothing.

    Raises:
        UsageError: `authorize` is an async function.
    """
    if iscoroutinefunction(authorize):
        raise UsageError("authorize is called in a thread: it must be no async function")
    return Dashboard(app, authorize, environment)


class Dashboard:
    """What `dashboard` returns."""

    def __init__(
        self, app: App, authorize: Authorize | None, environment: str | None = None
    ) -> None:
        self._app = app
        self._environment = environment or os.environ.get("ROTA_ENVIRONMENT", "")
        self._authorize = authorize
        self._memory = Memory(app)

        async def asgi(scope: Any, receive: Any, send: Any) -> None:
            await self._serve(scope, receive, send)

        self.asgi = asgi  # a function: servers take a method for an application of ASGI 2
        """The application of ASGI."""

    def warm(self) -> None:
        """Do ahead what the first page would wait for: compile the templates, ask doctor."""
        compile_templates()
        # Without a database the first page says so, and doctor has found nothing yet.
        with suppress(RotaError), open_session(self._app, is_read_only=True):
            self._memory.find_checks()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise UsageError(f"the dashboard answers HTTP, not {scope['type']}")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        prefix = scope.get("root_path", "")
        client = scope.get("client")
        request = Request(
            method=scope["method"],
            prefix=prefix,
            path=scope["path"].removeprefix(prefix) or "/",
            query=read_query(scope["query_string"].decode("latin-1")),
            headers=headers,
            peer=client[0] if client else None,
            scope=scope,
        )
        answer = await asyncio.to_thread(self.admit, request)
        if isinstance(answer, Request):
            body = await _receive_form(receive) if request.method == "POST" else b""
            answer = await asyncio.to_thread(self.answer, answer, body)
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
        is_unread = request.may_be_long or answer.status == 408
        if is_unread and scope["http_version"].startswith("1"):
            encoded.append((b"connection", b"close"))  # else the server reads the rest
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})

    def wsgi(self, wsgi_env: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request of WSGI."""
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in wsgi_env.items()
            if name.startswith("HTTP_")
        }
        headers["content-type"] = wsgi_env.get("CONTENT_TYPE") or ""
        headers["content-length"] = wsgi_env.get("CONTENT_LENGTH") or ""
        path = wsgi_env.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        request = Request(
            method=wsgi_env["REQUEST_METHOD"],
            prefix=wsgi_env.get("SCRIPT_NAME", ""),
            path=path or "/",
            query=read_query(wsgi_env.get("QUERY_STRING", "")),
            headers=headers,
            peer=wsgi_env.get("REMOTE_ADDR"),
            scope=wsgi_env,
        )
        answer = self.admit(request)
        if isinstance(answer, Request):
            size = request.body_bytes if request.method == "POST" else 0
            answer = self.answer(answer, wsgi_env["wsgi.input"].read(size) if size else b"")
        phrase = HTTPStatus(answer.status).phrase
        start_response(f"{answer.status} {phrase}", [*answer.headers])
        return [answer.body]

    def admit(self, request: Request) -> Request | Response:
        """Return an admitted request of any gateway; or its answer, before its body is read."""
        if request.path.startswith("/static/"):
            return _find_static(request)
        host = request.headers.get("host", "")
        access = find_access(self._authorize, request.scope, request.peer, host)
        if access is None:
            return _finish(self._refuse(request))
        request = replace(request, access=access, environment=self._environment)
        if request.method == "POST":
            if not access.verbs:
                return _finish(explain(request, 403, f"{access.who} may look, but not act"))
            if request.body_bytes is None:
                return _finish(explain(request, 400, "Content-Length is no number of bytes."))
            if request.body_bytes > FORM_MAX:
                return _finish(explain(request, 413, _TOO_LARGE))
        return request

    def _refuse(self, request: Request) -> Response:
        more = _NO_ACCESS if self._authorize is None else ""
        return explain(request, 403, "You may not see this.", more)

    def answer(self, request: Request, body: bytes | None) -> Response:
        """Answer a request that was admitted, with its body; None: the body did not arrive."""
        if request.method == "POST":
            if body is None or len(body) < (request.body_bytes or 0):
                return _finish(explain(request, 408, "The form did not arrive."))
            if len(body) > FORM_MAX:
                return _finish(explain(request, 413, _TOO_LARGE))
            kind = request.headers.get("content-type", "")
            request = replace(request, form=read_form(kind, body))
        try:
            return _finish(self._find(request))
        except _MISSING as error:
            return _finish(explain(request, 404, str(error)))
        except UsageError as error:
            status = 403 if isinstance(error, Forbidden) else 400
            return _finish(explain(request, status, str(error)))
        except RotaError as error:
            return _finish(_explain_trouble(request, error))

    def _find(self, request: Request) -> Response:
        if request.method in ("GET", "HEAD"):
            page = find_page(GETS, request.path)
            if page is None:
                return explain(request, 404, "There is no such page.")
            with open_session(self._app, is_read_only=True) as opened:
                return page(Look(opened, request, self._app, self._memory))
        act = find_page(POSTS, request.path)
        if act is None and find_page(GETS, request.path) is None:
            return explain(request, 404, "There is no such page.")
        if request.method != "POST" or act is None:
            response = explain(request, 405, "A page is read, or sent a form.")
            return replace(response, headers=(*response.headers, ("Allow", "GET, HEAD, POST")))
        if not (request.token or is_from_here(request.headers)):
            return explain(request, 403, "This form came from another site.", _FROM_ELSEWHERE)
        return act(Act(request, self._app, self._memory))


async def _receive_form(receive: Any) -> bytes | None:
    """Return a body, or its first FORM_MAX bytes and more; None: it did not arrive."""
    body, has_more = b"", True
    with suppress(TimeoutError):
        async with asyncio.timeout(FORM_S):
            while has_more and len(body) <= FORM_MAX:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                has_more = message.get("more_body", False)
            return body
    return None


_TOO_LARGE = f"A form has at most {FORM_MAX:,} bytes."
_TOO_LONG = ("57014", "55P03")
"""SQLSTATE of a statement that was cancelled, and of a statement that did not get its lock."""
_NARROWER = (
    "Somebody holds a lock, the database is busy, or the list is long: then ask for one type, one "
    "queue, a shorter time. Nothing was changed."
)
_NO_ACCESS = (
    "Without authorize= the dashboard is for this machine only: dashboard(app, authorize=…) says "
    "who may see it."
)
_FROM_ELSEWHERE = (
    "It has neither Sec-Fetch-Site: same-origin nor an Origin that is the Host. Behind a proxy, "
    "let it pass the Host on, with its port: in nginx that is $http_host, not $host."
)


def _explain_trouble(request: Request, error: RotaError) -> Response:
    if getattr(error.__cause__, "sqlstate", None) in _TOO_LONG:
        return explain(request, 503, "This took too long.", _NARROWER)
    if isinstance(error, DatabaseUnavailable):
        return explain(request, 503, "The database is not there.", str(error))
    return explain(request, 409, str(error))


def _finish(response: Response) -> Response:
    return replace(response, headers=(*response.headers, ("Cache-Control", "no-store"), *SAFE))


def _find_static(request: Request) -> Response:
    name = request.path.removeprefix("/static/")
    if name not in STATIC:
        return _finish(Response(404))
    body, tag = read_static(name)
    kept = (("ETag", tag), ("Cache-Control", "public, max-age=300"), *SAFE)
    if request.headers.get("if-none-match") == tag:
        return Response(304, headers=kept)
    return Response(200, body, (("Content-Type", STATIC[name]), *kept))


@cache
def read_static(name: str) -> tuple[bytes, str]:
    body = (files(__package__) / "static" / name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
