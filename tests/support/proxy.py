"""A TCP proxy between a client and a server: it can fall silent without closing anything, and lead
new connections elsewhere.
"""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 65536
_ROLE = re.compile(rb"application_name\0rota ([a-z ]+)\0")


class _Line:
    """One connection through the proxy; `role` is its name in its startup packet."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.open = asyncio.Event()
        self.open.set()


class Proxy:
    """`with Proxy(port) as proxy: connect(proxy.url("db"))`.

    Works in a thread of its own, for plain and async tests.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        """The port of 127.0.0.1 that new connections lead to."""
        self.port = 0
        self.seen: list[str] = []
        """The roles of the connections, in the order in which they were opened."""
        self._lines: list[_Line] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result(10)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, dbname: str = "postgres") -> str:
        """Where a database is found through the proxy."""
        server = f"postgresql://postgres@127.0.0.1:{self.port}"
        return f"{server}/{dbname}?sslmode=disable&gssencmode=disable"

    def silence(self, *roles: str, new_ones_too: bool = False) -> None:
        """Swallow what the open connections of these roles send; neither end notices.

        Without roles: all connections.
        """
        self._call(self._silence, set(roles), new_ones_too)

    def heal(self) -> None:
        """Pass everything on again that is sent from now on."""
        self._call(self._heal)

    def _silence(self, roles: set[str], new_ones_too: bool) -> None:
        for line in self._lines:
            if not roles or line.role in roles:
                line.open.clear()
        if new_ones_too:
            self._silent |= roles or {"*"}

    def _heal(self) -> None:
        self._silent.clear()
        for line in self._lines:
            line.open.set()

    def _call(self, what: object, *arguments: object) -> None:
        async def call() -> None:
            what(*arguments)  # type: ignore[operator]

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    async def _close(self) -> None:
        self._server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # a connection that was being accepted has a task by now
        for writer in self._writers:
            writer.transport.abort()  # a peer that does not read would keep a closed one open
        await asyncio.sleep(0)  # its socket is closed

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        # The server is not there: the client's connection is closed.
        with suppress(OSError, asyncio.CancelledError):
            await self._lead(reader, writer)
        writer.close()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await reader.read(CHUNK_BYTES)
        found = _ROLE.search(hello)
        line = _Line(found[1].decode() if found else "")
        if self._silent & {line.role, "*"}:
            line.open.clear()
        self._lines.append(line)
        self.seen.append(line.role)
        await line.open.wait()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.add(server_writer)
        server_writer.write(hello)
        ways = [
            asyncio.create_task(_pass_on(reader, server_writer, line)),
            asyncio.create_task(_pass_on(server_reader, writer, line)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            server_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: _Line) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await line.open.wait()
            writer.write(data)
            await writer.drain()
        # The end of a connection that has fallen silent is not passed on either.
        await line.open.wait()
