"""The port of a container's probes, `/healthz` (liveness) and `/readyz` (readiness), and of
`/metrics`."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from rota.errors import ConfigurationError

Probe = Callable[[], str | None]
"""Returns what is wrong; None: nothing. Called in threads of the server."""

CLIENT_S = 5.0
"""A client that sends nothing for this long is disconnected."""
CLIENTS_MAX = 16
"""Most clients at once, each in a thread. Further ones are disconnected; a probe tries again."""


@contextmanager
def serve_health(
    port: int | None, liveness: Probe, readiness: Probe, metrics: Callable[[], str] | None = None
) -> Iterator[None]:
    """Answer on a port of all interfaces, for a block, from a thread: 200, or 503 and the reason.

    Without a port it does nothing.

    Raises:
        ConfigurationError: the port is in use, or this user may not listen on it.
    """
    if port is None:
        yield
        return
    with _Server(port, {"/healthz": liveness, "/readyz": readiness}, metrics) as server:
        thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="rota-health",
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            server.shutdown()


# Not http.server's own server, which asks the DNS for its name before it listens.
class _Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(
        self, port: int, probes: dict[str, Probe], metrics: Callable[[], str] | None
    ) -> None:
        self.probes, self.metrics = probes, metrics
        self._room = threading.Semaphore(CLIENTS_MAX)
        try:
            super().__init__(("", port), _Request)
        except OSError as error:
            raise ConfigurationError(
                f"the health port {port} cannot be listened on: {error.strerror}"
            ) from None

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4 as well
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # no thread for it
                self._room.release()
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that disconnects does no harm."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = CLIENT_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        probe = self.server.probes.get(path)
        if path == "/metrics" and self.server.metrics is not None:
            self._answer(HTTPStatus.OK, self.server.metrics(), "text/plain; version=0.0.4")
        elif probe is None:
            self._answer(HTTPStatus.NOT_FOUND, "ask /healthz or /readyz")
        elif (problem := probe()) is None:
            self._answer(HTTPStatus.OK, "ok")
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, problem)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = f"{text.rstrip()}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "rota"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe comes every few seconds."""
