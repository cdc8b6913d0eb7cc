"""A web server on the loopback that answers as a test says, and keeps its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    """By their names in lower case."""

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@dataclass
class Web:
    """The server.

    `status` is what it answers, after `pause_s`; None: nothing, until the test is over.
    `dribbles`: it answers a byte at a time, as long. A body with `refused` in it is answered with
    400.
    """

    url: str = ""
    status: int | None = 200
    pause_s: float = 0.0
    dribbles: bool = False
    refused: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving() -> Iterator[Web]:
    """Serve for a block."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            web.asked.append(Asked(self.command, self.path, body, headers))
            while web.dribbles and not web.over.wait(0.05):
                self.wfile.write(b"H")
            if web.status is None:
                web.over.wait(60)
                return
            web.over.wait(web.pause_s)
            self.send_response(
                400 if web.refused is not None and web.refused in body else web.status
            )
            for name, value in web.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        web.url = f"http://127.0.0.1:{server.server_address[1]}/hook/the-secret"
        try:
            yield web
        finally:
            web.over.set()
            server.shutdown()
            thread.join()
