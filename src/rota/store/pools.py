"""The connections of an App to enqueue and read: a pool for plain code, and one per event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar, cast

import psycopg
from psycopg import capabilities, pq
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from rota.store.drivers.own import CANCEL_S, OwnConnection, explain_cancel
from rota.store.drivers.psycopg3 import PsycopgDriver, translate
from rota.store.errors import PoolExhausted, ServerTrouble, StoreError

POOL_MAX = 4
"""Most connections in each of an App's two pools (sync, async)."""
IDLE_S = 60
"""Seconds after which an unused pooled connection is closed."""
PREPARE_AFTER = 5
"""Runs after which a pooled connection prepares a statement."""


T = TypeVar("T")
WaitGenerator = Generator[Any, Any, T]

_IDLE = pq.TransactionStatus.IDLE
_CLOSE_S = 5.0
_EXIT_S = 1.0
"""Longest wait for a pool's thread: a thread that connects to an absent server does not notice the
end."""

_all: weakref.WeakSet[Pools] = weakref.WeakSet()


class LastFailure:
    """The error of a pool's last connect, also while a connect runs; None: it succeeded."""

    def __init__(self) -> None:
        self.error: psycopg.Error | None = None

    @contextmanager
    def note(self) -> Iterator[None]:
        """Note the outcome of a block that connects."""
        self.error = psycopg.OperationalError("the server accepts no connection")
        try:
            yield
        except psycopg.Error as error:
            self.error = error
            raise
        self.error = None


class PlainPooled(psycopg.Connection):
    """A connection with a limit for each answer."""

    answer_s: float | None = None
    """Longest wait for one answer. The borrower sets it."""
    _driver: PsycopgDriver | None = None

    def driver(self) -> PsycopgDriver:
        """Return the driver of this connection, made once."""
        if self._driver is None:
            self._driver = PsycopgDriver(self)
        return self._driver

    @classmethod
    def connect(cls, conninfo: str = "", **settings: Any) -> Any:
        failure: LastFailure = settings.pop("failure")
        with failure.note():
            return super().connect(conninfo, **settings)

    def wait(self, gen: WaitGenerator[T], *arguments: Any, **settings: Any) -> T:
        """Wait as psycopg does, which looks up ten times a second. Past the limit the server is
        asked to cancel the statement; without an answer to that, the connection is cut."""
        if self.answer_s is not None:
            gen = self._limit(gen, self.answer_s)
        return super().wait(gen, *arguments, **settings)

    def _limit(self, gen: WaitGenerator[T], limit_s: float) -> WaitGenerator[T]:
        until, has_cancelled = monotonic() + limit_s, False
        cancel_s = min(CANCEL_S, limit_s / 4)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and monotonic() > until:
                    if has_cancelled:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"no answer within {limit_s:g} s")
                    self._cancel_within(cancel_s)
                    until, has_cancelled = monotonic() + cancel_s, True
                wanted = gen.send(ready)
        except psycopg.errors.QueryCanceled as error:
            if has_cancelled:
                raise explain_cancel(limit_s) from error
            raise
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _cancel_within(self, timeout_s: float) -> None:
        if capabilities.has_cancel_safe():  # an older libpq would wait for ever
            try:
                self.cancel_safe(timeout=timeout_s)
            except (psycopg.Error, OSError):
                return  # the connection is cut soon


class AsyncPooled(OwnConnection):
    @classmethod
    async def connect(cls, conninfo: str = "", **settings: Any) -> Any:
        failure: LastFailure = settings.pop("failure")
        with failure.note():
            return await super().connect(conninfo, **settings)


class SyncPool(ConnectionPool[PlainPooled]):
    """A pool that replaces all idle connections when the server has closed a connection: a restart
    closes all, and a new connection opens at once."""

    def getconn(self, timeout: float | None = None) -> PlainPooled:
        connection = super().getconn(timeout)
        if _is_closed(connection):
            self.drain()
            self.putconn(connection)
            connection = super().getconn(timeout)
        return connection


class AsyncPool(AsyncConnectionPool[AsyncPooled]):
    """As `SyncPool`; and its workers end when they are cancelled.

    `asyncio.run` cancels the remaining tasks and waits for them. A connecting worker would take a
    cancel for a failed attempt, continue, and keep `asyncio.run` waiting for ever.
    """

    async def getconn(self, timeout: float | None = None) -> AsyncPooled:
        connection = await super().getconn(timeout)
        if _is_closed(connection):
            try:
                await self.drain()
            finally:
                await self.putconn(connection)
            connection = await super().getconn(timeout)
        return connection

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(cast(Any, _UntilCancelled(q)))


class _UntilCancelled:
    """A queue of tasks that gives no task to a cancelled worker."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._tasks.get()


class _Opened:
    """The pools that one process has opened or is opening."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        """Held while a thread opens the sync pool, which may wait for the server."""
        self.pool: SyncPool | None = None
        self.failure: psycopg.Error | None = None
        """Error of the sync pool's open at `failed_at`."""
        self.failed_at = -inf
        self.lock = threading.Lock()
        """Guards the pools of the loops. Held for moments only."""
        self.async_pools: dict[asyncio.AbstractEventLoop, asyncio.Task[AsyncPool]] = {}


class Lent:
    """A connection of the sync pool, for a block. A class, because the context managers of
    `contextlib` and of the pool cost as much as half of an enqueue."""

    __slots__ = ("_connection", "_pool", "_pools")

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def __enter__(self) -> PlainPooled:
        self._pool, self._connection = self._pools.borrow()
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        pool, connection = self._pool, self._connection
        try:
            if isinstance(error, ServerTrouble) and error.is_read_only:
                connection.close()
                pool.drain()
            elif connection.pgconn.transaction_status != _IDLE:
                connection.__exit__(kind, error, stack)
        finally:
            pool.putconn(connection)


class AsyncLent:
    """A connection of a loop's pool, for a block, as `Lent`."""

    __slots__ = ("_connection", "_pool", "_pools")

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    async def __aenter__(self) -> AsyncPooled:
        self._pool, self._connection = await self._pools.aborrow()
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        pool, connection = self._pool, self._connection
        try:
            if isinstance(error, ServerTrouble) and error.is_read_only:
                await connection.close()
                await pool.drain()
            elif connection.pgconn.transaction_status != _IDLE:
                await connection.__aexit__(kind, error, stack)
        finally:
            await pool.putconn(connection)


class Pools:
    """Both pools, opened at first use, by any thread or loop.

    A fork gets its own pools: it must not share its parent's sockets, nor wait for a lock that a
    thread of its parent held.
    """

    def __init__(self, conninfo: Callable[[], str], *, wait_s: float, prepares: bool) -> None:
        self._conninfo = conninfo
        self._wait_s = wait_s
        self._failure = LastFailure()
        self._options: dict[str, Any] = {
            "min_size": 0,
            "max_size": POOL_MAX,
            "timeout": wait_s,
            # The pool connects again at doubling pauses, by default for minutes: it would stay shut
            # for half a minute after the server is back. After this limit the next call begins
            # again.
            "reconnect_timeout": wait_s,
            "max_idle": IDLE_S,
            "kwargs": {
                "autocommit": True,
                "prepare_threshold": PREPARE_AFTER if prepares else None,
                "failure": self._failure,
            },
        }
        self._by_process: dict[int, _Opened] = {}
        _all.add(self)

    def connection(self) -> Lent:
        """Lend a connection, in autocommit. Raises StoreError: no connection within `wait_s`.

        After a failover old connections may lead to a read-only server for ever. The first
        read-only error replaces all connections.
        """
        return Lent(self)

    def aconnection(self) -> AsyncLent:
        """Lend a connection of the running loop's pool, in autocommit, as `connection` does."""
        return AsyncLent(self)

    def borrow(self) -> tuple[SyncPool, PlainPooled]:
        """Take a connection of the sync pool, which the caller gives back."""
        until = monotonic() + self._wait_s
        while True:
            try:
                pool = self._sync_pool()
                return pool, pool.getconn(_rest_s(until))
            except PoolClosed:
                # Another thread closed the pool, for example after a drain. Nothing was sent yet,
                # so the next pool serves.
                continue
            except psycopg.Error as error:
                raise self._translate(error) from error

    async def aborrow(self) -> tuple[AsyncPool, AsyncPooled]:
        """Take a connection of the running loop's pool, which the caller gives back."""
        until = monotonic() + self._wait_s
        try:
            pool = await self._async_pool()
            return pool, await pool.getconn(_rest_s(until))
        except psycopg.Error as error:
            raise self._translate(error) from error

    def close(self, threads_s: float = _CLOSE_S) -> None:
        """Close the sync pool; the next use opens it again. `threads_s`: longest wait for each
        thread."""
        opened = self._of_this_process()
        with opened.opening:
            pool, opened.pool = opened.pool, None
        if pool is not None:
            pool.close(threads_s)

    def close_at_exit(self) -> None:
        """Close this process's sync pool, without a wait for threads that are opening it."""
        opened = self._by_process.get(os.getpid())
        if opened is not None and opened.pool is not None:
            self.close(_EXIT_S)

    def forget_closed_loops(self) -> None:
        """Drop the pools of closed loops, which closes their connections."""
        opened = self._of_this_process()
        with opened.lock:  # other threads have loops too
            opened.async_pools = {
                loop: pool for loop, pool in opened.async_pools.items() if not loop.is_closed()
            }

    async def aclose(self) -> None:
        """Close the pool of the running loop, and the sync pool."""
        opened = self._of_this_process()
        with opened.lock:
            opening = opened.async_pools.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await asyncio.wait([opening])
            if not _has_failed(opening):
                await opening.result().close()
        self.close()

    def _of_this_process(self) -> _Opened:
        process = os.getpid()
        # One step, because several threads may get here at once.
        return self._by_process.get(process) or self._by_process.setdefault(process, _Opened())

    def _translate(self, error: psycopg.Error) -> StoreError:
        if not isinstance(error, PoolTimeout):
            return translate(error)
        failed = self._failure.error
        if failed is not None:  # the pool itself says only how long it tried
            return translate(failed)
        why = f"all {POOL_MAX} that the App may have are in use"
        return PoolExhausted(f"{why} ({translate(error).first_line})", driver_error=error)

    def _sync_pool(self) -> SyncPool:
        asked_at, opened = monotonic(), self._of_this_process()
        if (pool := opened.pool) is not None:
            return pool
        # Dozens of threads may be the first at once: one thread connects, and all get its result.
        with opened.opening:
            if opened.pool is None:
                if opened.failure is not None and asked_at < opened.failed_at:
                    raise opened.failure
                try:
                    opened.pool = self._open()
                except psycopg.Error as error:
                    opened.failure, opened.failed_at = error, monotonic()
                    raise
            return opened.pool

    def _open(self) -> SyncPool:
        # A pool would try until its time is up and then hide the reason. This reports a wrong
        # password or an absent server at once.
        psycopg.connect(self._conninfo()).close()
        return SyncPool(self._conninfo(), open=True, connection_class=PlainPooled, **self._options)

    async def _async_pool(self) -> AsyncPool:
        loop, opened = asyncio.get_running_loop(), self._of_this_process()
        known = opened.async_pools.get(loop)
        if known is not None and known.done() and not _has_failed(known):
            return known.result()
        self.forget_closed_loops()
        with opened.lock:
            opening = opened.async_pools.get(loop)
            if opening is None or _has_failed(opening):
                # Hundreds of requests may be the first at once, as above.
                opening = opened.async_pools[loop] = loop.create_task(self._aopen())
        return await asyncio.shield(opening)

    async def _aopen(self) -> AsyncPool:
        # As in _open.
        await (await psycopg.AsyncConnection.connect(self._conninfo())).close()
        pool = AsyncPool(
            self._conninfo(), open=False, connection_class=AsyncPooled, **self._options
        )
        await pool.open()
        return pool


@atexit.register
def close_all() -> None:
    """Close all open sync pools, and the pools of closed loops. The next use opens a pool again.

    At Python's end each pool would otherwise wait for its threads, when no thread can run: 5 s each
    on 3.13, with warnings.
    """
    for pools in list(_all):
        pools.close_at_exit()
        pools.forget_closed_loops()


def _rest_s(until: float) -> float:
    """Return the seconds left to wait for a free connection: at least a second, because the first
    use of a pool may have taken all of them."""
    return max(until - monotonic(), 1.0)


def _has_failed(opening: asyncio.Task[AsyncPool]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def _is_closed(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """Whether the server closed an idle connection. No round trip: the end of a socket can be
    read."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
