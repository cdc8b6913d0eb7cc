"""The port of a container's probes, `/healthz` and `/readyz`, and of `/metrics`."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus

from rota.errors import ConfigurationError
from rota.runtime.loop import call_in_thread

Probe = Callable[[], str | None]
"""Returns what is wrong; None: nothing. Called in the thread of the server."""

CLIENT_S = 10.0
"""Seconds after which a client is disconnected. Prometheus waits as long for `/metrics`."""
CLIENTS_MAX = 64
"""Most clients at once. One more disconnects the oldest: slow clients keep out no probe."""
LINES_MAX = 100


@contextmanager
def serve_health(
    port: int | None, liveness: Probe, readiness: Probe, metrics: Callable[[], str] | None = None
) -> Iterator[None]:
    """Answer on a port of all interfaces, for a block, from a thread: 200, or 503 and the reason.
    Without a port it does nothing. Raises ConfigurationError if the port is in use or not
    allowed."""
    if port is None:
        yield
        return
    server = _Server({"/healthz": liveness, "/readyz": readiness}, metrics)
    with _listen(port) as listening:
        # A loop of its own, because a blocked loop of the worker is what it reports.
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=server.run, args=(loop, listening), name="rota-health", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(server.is_over.set)
            thread.join()


def _listen(port: int) -> socket.socket:
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        raise ConfigurationError(
            f"the health port {port} cannot be listened on: {error.strerror}"
        ) from None


class _Server:
    def __init__(self, probes: Mapping[str, Probe], metrics: Callable[[], str] | None) -> None:
        self.is_over = asyncio.Event()
        self._probes = probes
        self._metrics = metrics
        self._measuring: asyncio.Future[str] | None = None
        """The last answer of `metrics`: one thread asks it, however many clients wait."""
        self._clients: dict[asyncio.Task[None], None] = {}
        """The oldest first."""

    def run(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._take_client, sock=listening)
        await self.is_over.wait()
        server.close()

    def _take_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            oldest.cancel()
        # A task of its own: Python 3.11 logs a traceback where a task of its server is cancelled.
        task = asyncio.create_task(self._serve_client(reader, writer))
        self._clients[task] = None

        def leave(task: asyncio.Task[None]) -> None:
            self._clients.pop(task, None)
            writer.transport.abort()

        task.add_done_callback(leave)  # also of one that is cancelled before its first step

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # ValueError: a line that is too long, or no request.
        with suppress(TimeoutError, OSError, ValueError):
            async with asyncio.timeout(CLIENT_S):
                writer.write(await self._answer(reader))
                writer.close()
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        method, target, *_ = (await reader.readline()).decode("latin-1").split()
        for _ in range(LINES_MAX):
            if not (await reader.readline()).strip():
                break
        path = target.partition("?")[0]
        probe, kind = self._probes.get(path), "text/plain"
        if path == "/metrics" and self._metrics is not None:
            status, text, kind = HTTPStatus.OK, await self._measure(), "text/plain; version=0.0.4"
        elif probe is None:
            status, text = HTTPStatus.NOT_FOUND, "ask /healthz or /readyz"
        elif (problem := probe()) is None:
            status, text = HTTPStatus.OK, "ok"
        else:
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, problem
        body = f"{text.rstrip()}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {kind}; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)

    async def _measure(self) -> str:
        assert self._metrics is not None
        if self._measuring is None or self._measuring.done():
            self._measuring = call_in_thread(self._metrics, "rota-metrics")
        return await asyncio.shield(self._measuring)
