"""The connections that an App keeps for enqueueing and reading: a pool for plain code, and one for each event loop."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

POOL_MAX = 4
"""Connections an App holds at most for enqueueing and reading, in each of its two pools (sync, async)."""
IDLE_S = 60
"""A pooled connection that nobody used for so long is closed."""
PREPARE_AFTER = 5
"""A statement that a pooled connection has run so often is prepared."""

READ_ONLY = psycopg.errors.ReadOnlySqlTransaction
"""After a failover the old connections may lead to a server that only reads: they answer, and never serve again. The new server is found by
opening new ones, so all are given up with the first that says so."""

SyncPool = ConnectionPool[psycopg.Connection]
AsyncPool = AsyncConnectionPool[psycopg.AsyncConnection]


class Pools:
    """Both pools, opened when first used; a fork gets its own, for it must not share its parent's sockets."""

    def __init__(self, conninfo: Callable[[], str], *, wait_s: float, prepares: bool) -> None:
        self._conninfo = conninfo
        self._options: dict[str, Any] = {
            "min_size": 0,
            "max_size": POOL_MAX,
            "timeout": wait_s,
            # Its tries to connect come at doubling pauses. Left to go on for minutes, as they are by default, they would keep a pool shut for half a
            # minute after the server is back; given up, the next call begins anew.
            "reconnect_timeout": wait_s,
            "max_idle": IDLE_S,
            "kwargs": {"autocommit": True, "prepare_threshold": PREPARE_AFTER if prepares else None},
        }
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._pool: SyncPool | None = None
        self._async_pools: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Task[AsyncPool]]] = {}
        """With their loops, as what opens them, or has opened them."""

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection]:
        """Lend a connection, in autocommit."""
        pool = self._sync_pool()
        with pool.connection() as connection:
            try:
                yield connection
            except READ_ONLY:
                connection.close()
                pool.drain()
                raise

    @asynccontextmanager
    async def aconnection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Lend a connection of the running loop's pool, in autocommit."""
        pool = await self._async_pool()
        async with pool.connection() as connection:
            try:
                yield connection
            except READ_ONLY:
                await connection.close()
                await pool.drain()
                raise

    def close(self) -> None:
        """Close the sync pool. The next use opens it again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    async def aclose(self) -> None:
        """Close the pool of the running loop, and the sync one."""
        known = self._async_pools.pop(id(asyncio.get_running_loop()), None)
        if known is not None:
            await asyncio.wait([known[1]])
            if not _has_failed(known[1]):
                await known[1].result().close()
        self.close()

    def _sync_pool(self) -> SyncPool:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._async_pools = {}
                # A pool would try until its time is up and then not say why: a wrong password or an absent server is told here, at once.
                psycopg.connect(self._conninfo()).close()
                self._pool = ConnectionPool(self._conninfo(), open=True, check=_refuse_broken, **self._options)
            return self._pool

    async def _async_pool(self) -> AsyncPool:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid, self._pool, self._async_pools = os.getpid(), None, {}
        self._async_pools = {key: known for key, known in self._async_pools.items() if not known[0].is_closed()}
        known = self._async_pools.get(id(loop))
        if known is None or known[0] is not loop or _has_failed(known[1]):
            # Hundreds of requests may be the first at once: one of them tries to connect, and all hear what came of it.
            self._async_pools[id(loop)] = known = (loop, loop.create_task(self._open()))
        return await asyncio.shield(known[1])

    async def _open(self) -> AsyncPool:
        await (await psycopg.AsyncConnection.connect(self._conninfo())).close()  # as in _sync_pool
        pool: AsyncPool = AsyncConnectionPool(self._conninfo(), open=False, check=_arefuse_broken, **self._options)
        await pool.open()
        return pool


def _has_failed(opening: asyncio.Task[AsyncPool]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _refuse_broken(connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
    """Let the pool replace a connection that the server closed while it was idle. No round trip: the end of a socket can be read."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        connection.pgconn.finish()  # else the pool would take it for sound
        raise psycopg.OperationalError("the server closed the connection while it was idle")


async def _arefuse_broken(connection: psycopg.AsyncConnection) -> None:
    _refuse_broken(connection)
