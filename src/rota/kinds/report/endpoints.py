"""Two small endpoints for who asked for a report: its status as JSON, and its file."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from inspect import iscoroutinefunction
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlencode

import rota
from rota.kinds.report.formats import FORMATS
from rota.kinds.report.run import FileGone

if TYPE_CHECKING:
    from rota.kinds.report.reports import Reports
    from rota.kinds.report.run import ReportRun

CHUNK_BYTES = 64 * 1024
SECRET_MIN = 16
_PATH = re.compile(r"/([0-9]{1,18})(/file)?/?")
Allow = Callable[[Any, Any], bool]


class _Reply(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes | IO[bytes]


class Endpoints:
    """`GET /ID`, the status as JSON, and `GET /ID/file`, the file: as an application of ASGI
    (`endpoints.asgi`) and of WSGI (`endpoints.wsgi`), to be mounted under any path.

    A request is allowed by a link that `link` has signed, or by the application's own check.
    """

    def __init__(
        self, reports: Reports, *, secret: str | None = None, allow: Allow | None = None
    ) -> None:
        """Args:
            secret: with which links are signed, at least 16 characters; the same in all processes.
            allow: is called with the run, and the `scope` of ASGI or the `environ` of WSGI, in a
                thread; returns True if this request may have it.

        Raises:
            UsageError: neither is given, or the secret is too short.
        """
        if secret is None and allow is None:
            raise rota.UsageError("give endpoints of reports a secret, or a check of yours: allow=")
        if secret is not None and len(secret) < SECRET_MIN:
            raise rota.UsageError(f"the secret of links has at least {SECRET_MIN} characters")
        if iscoroutinefunction(allow):
            raise rota.UsageError("allow is called in a thread: it must be no async function")
        self._reports, self._secret, self._allow = reports, secret, allow

        async def asgi(scope: Any, receive: Any, send: Any) -> None:
            await self._serve(scope, receive, send)

        self.asgi = asgi  # a function: servers take a method for an application of ASGI 2
        """The application of ASGI."""

    def link(self, run: ReportRun, *, expires_s: float = 3600.0) -> str:
        """Return the path of a run's file with a signature that expires, such as
        `/7/file?expires=…`: put the path in front under which the endpoints are mounted. Without
        `/file`, the same query shows the status.

        Args:
            expires_s: seconds from now.

        Raises:
            UsageError: there is no secret to sign with.
        """
        until = int(time.time() + expires_s)
        query = urlencode({"expires": until, "signature": self._sign(run.id, str(until))})
        return f"/{run.id}/file?{query}"

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise rota.UsageError(f"endpoints of reports answer HTTP, not {scope['type']}")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        query = scope["query_string"].decode("latin-1")
        reply = await asyncio.to_thread(self._answer, scope["method"], path, query, scope)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
        start = {"type": "http.response.start", "status": int(reply.status[:3])}
        gone = asyncio.ensure_future(_wait_until_gone(receive))
        with BytesIO(reply.body) if isinstance(reply.body, bytes) else reply.body as body:
            try:
                await send({**start, "headers": headers})
                more = True
                while more and not gone.done():
                    part = await asyncio.to_thread(body.read, CHUNK_BYTES)
                    more = bool(part)
                    await send({"type": "http.response.body", "body": part, "more_body": more})
                if gone.done():
                    gone.result()
            finally:
                gone.cancel()

    def wsgi(self, asked: Any, start_response: Any) -> Iterable[bytes]:
        """Answer a request of WSGI."""
        method, path = asked["REQUEST_METHOD"], asked.get("PATH_INFO", "")
        reply = self._answer(method, path, asked.get("QUERY_STRING", ""), asked)
        start_response(reply.status, reply.headers)
        return [reply.body] if isinstance(reply.body, bytes) else _split(reply.body)

    def _answer(self, method: str, path: str, query: str, request: Any) -> _Reply:
        found = _PATH.fullmatch(path)
        if found is None:
            return _say("404 Not Found", "there is no such report")
        if method not in ("GET", "HEAD"):
            return _say("405 Method Not Allowed", "GET it", ("allow", "GET, HEAD"))
        try:
            run = self._reports.get(int(found[1]))
        except FileGone:
            return _say("404 Not Found", "there is no such report, or it is not kept any more")
        if not (
            self._is_signed(run, query)
            or (self._allow is not None and self._allow(run, request) is True)
        ):
            return _say("403 Forbidden", "the link has expired, or this report is somebody else's")
        reply = self._give_file(run) if found[2] else _give_status(run)
        if method == "HEAD" and not isinstance(reply.body, bytes):
            reply.body.close()
        return reply._replace(body=b"") if method == "HEAD" else reply

    def _give_file(self, run: ReportRun) -> _Reply:
        url = None if run.file is None else self._reports.store.url(run.file, 300.0)
        if url is not None and run.status == "ready":
            return _say("302 Found", "it is there", ("location", url))
        try:
            file = run.open()
        except FileGone as error:
            return _say("410 Gone" if run.finished_at else "409 Conflict", str(error))
        name = str(run.file).rpartition("/")[2]
        headers = [
            ("content-type", FORMATS[name.rpartition(".")[2]].media_type),
            ("content-length", str(run.size)),
            ("content-disposition", f'attachment; filename="{name}"'),
            ("etag", f'"{run.checksum}"'),
            ("cache-control", "private"),
            ("x-content-type-options", "nosniff"),
        ]
        return _Reply("200 OK", headers, file)

    def _sign(self, run: int, until: str) -> str:
        if self._secret is None:
            raise rota.UsageError("there is no secret to sign links with")
        digest = hmac.new(self._secret.encode(), f"{run}.{until}".encode(), hashlib.sha256)
        return digest.hexdigest()

    def _is_signed(self, run: ReportRun, query: str) -> bool:
        given = {name: values[0] for name, values in parse_qs(query).items()}
        until = given.get("expires", "")
        if self._secret is None or not re.fullmatch("[0-9]{1,12}", until):
            return False
        wanted = self._sign(run.id, until).encode()
        return int(until) >= time.time() and hmac.compare_digest(
            wanted, given.get("signature", "").encode(errors="replace")
        )


def _give_status(run: ReportRun) -> _Reply:
    facts = {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "progress": run.progress,
        "pages_done": run.pages_done,
        "pages": run.pages,
        "rows": run.rows,
        "size": run.size,
    }
    if run.status == "failed":
        facts["progress"] = "failed"  # why is for those who run it
    body = json.dumps(facts).encode()
    kind = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return _Reply("200 OK", [*kind, ("cache-control", "no-store")], body)


def _say(status: str, text: str, *headers: tuple[str, str]) -> _Reply:
    body = f"{text}\n".encode()
    kind = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body)))]
    return _Reply(status, [*kind, *headers], body)


async def _wait_until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _split(body: IO[bytes]) -> Iterator[bytes]:
    with body:
        while part := body.read(CHUNK_BYTES):
            yield part
