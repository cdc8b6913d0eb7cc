"""An HTTP server on the loopback that answers as each path says: well, badly, slowly, endlessly."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """What came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """The server, and what it got."""

    port: int
    requests: list[Request] = field(default_factory=list)
    codes: dict[str, list[int]] = field(default_factory=dict)
    """By path: the codes of the next answers; then 200, or the number that the path is."""
    release: threading.Event = field(default_factory=threading.Event)
    """Lets the slow answers end."""
    host: str = "127.0.0.1"
    connections: int = 0

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"http://{self.host}:{self.port}{path}"

    def of(self, path: str) -> list[Request]:
        """Return what came to a path."""
        return [request for request in self.requests if request.path == path]


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Serve until the block ends."""

    class Handler(_Handler):
        its = Receiver(0)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Handler.its.port = server.server_address[1]
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05))
    thread.start()
    try:
        yield Handler.its
    finally:
        Handler.its.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    its: Receiver

    def setup(self) -> None:
        self.its.connections += 1
        super().setup()

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.its.requests.append(Request(self.path, headers, self.rfile.read(length)))
        action = getattr(self, f"_{self.path.strip('/').replace('-', '_')}", None)
        if action is not None:
            action()
            return
        if self.path.endswith("/echo-token"):
            self._answer(int(self.path.split("/")[1]), b"who sends password=hunter2 may not")
            return
        codes = self.its.codes.get(self.path, [])
        last = self.path.rpartition("/")[2]
        self._answer(codes.pop(0) if codes else int(last) if last.isdigit() else 200)

    def _answer(self, code: int, body: bytes = b"thanks", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _limited(self) -> None:
        """Two requests on a connection, and it says so of neither."""
        self.answered = getattr(self, "answered", 0) + 1
        if self.answered > 2:
            self.its.requests.pop()
            self.close_connection = True
        else:
            self._answer(200)

    def _redirect(self) -> None:
        self._answer(302, b"", location=self.its.url("/secret"))

    def _busy(self) -> None:
        self._answer(503, b"later", retry_after="120")

    def _busy_until(self) -> None:
        self._answer(429, b"later", retry_after=formatdate(time.time() + 300, usegmt=True))

    def _hang(self) -> None:
        self.its.release.wait(30)
        self.close_connection = True

    def _drip(self) -> None:
        """A code, and then a byte now and then."""
        self.send_response(200)
        self.send_header("content-length", "100000")
        self.end_headers()
        while not self.its.release.wait(0.2):
            try:
                self.wfile.write(b".")
            except OSError:
                break
        self.close_connection = True

    def _drip_headers(self) -> None:
        """No code: a byte of a header now and then."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        while not self.its.release.wait(0.2):
            try:
                self.wfile.write(b".")
            except OSError:
                break
        self.close_connection = True

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        chunk = b"x" * 65536
        try:
            while not self.its.release.is_set():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        except OSError:
            pass
        self.close_connection = True

    def _cut(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b"half of it")
        self.close_connection = True

    def _nul(self) -> None:
        self._answer(400, b"not\0here\x1b[31m")

    def _nul_gone(self) -> None:
        self._answer(410, b"\0")

    def _nul_ok(self) -> None:
        self._answer(200, b"\0thanks")

    def _drop(self) -> None:
        self.close_connection = True

    def _echo(self) -> None:
        self._answer(500, b"no customer " + self.its.requests[-1].body)

    def _garbage(self) -> None:
        self.wfile.write(b"no customer " + self.its.requests[-1].body + b"\r\n\r\n")
        self.close_connection = True

    def _bomb(self) -> None:
        self._answer(200, gzip.compress(b"0" * 50_000_000), content_encoding="gzip")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
