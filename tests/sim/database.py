"""A database as a simulated process sees it: its answers take virtual time, come late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg

from rota.store.db import LOCK_TIMEOUT_S, PATIENT, Border, Database, Patience
from rota.store.driver import Operation, Params, Row, adrive
from rota.store.drivers.psycopg3 import ERRORS, translate
from rota.store.errors import StoreError

if TYPE_CHECKING:
    from tests.sim.loop import Process
    from tests.sim.server import Call
    from tests.sim.world import World


NOT_OURS = ("app", "handler", "sql")
"""The roles of connections that are not Rota's own."""


class SimDatabase(Database):
    """The database of one process."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world.server.url)
        self._world = world
        self._process = process

    def strip_settings(self) -> Database:
        return self

    async def connect(
        self, role: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S, **_: float
    ) -> Any:
        waits_s = 0.0 if role in NOT_OURS else lock_timeout_s
        connection = SimConnection(self._world, self._process, role, waits_s)
        await connection.open()
        return connection

    @asynccontextmanager
    async def aopen_transaction(self) -> AsyncIterator[Any]:
        connection = await self.connect("handler")
        try:
            async with connection.driver().transaction():
                yield connection
        finally:
            await connection.close()

    async def arun(
        self,
        operation: Operation[Any],
        connection: Any = None,
        *,
        atomic: bool = False,
        joins: str | None = None,
        patience: Patience = PATIENT,
    ) -> Any:
        if connection is not None:
            return await adrive(connection.driver(), operation, self.statements, atomic=atomic)
        with Border(is_own=True):
            try:
                made = await self.connect("client")
            except ERRORS as error:
                raise translate(error) from error
            try:
                return await adrive(made.driver(), operation, self.statements, atomic=atomic)
            finally:
                await made.close()


class _Known:
    """What calls of Rota know as a connection of an event loop."""


_Known.__module__, _Known.__qualname__ = "psycopg", "AsyncConnection"


class SimConnection(_Known):
    """In place of an `OwnConnection`."""

    def __init__(self, world: World, process: Process, role: str, waits_s: float) -> None:
        self.world = world
        self.process = process
        self.role = role
        self.waits_s = waits_s
        """How long its statements wait for locks, in all; 0: for ever."""
        self._session: Any = None
        self._sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._sent.set_result(None)  # the last statement
        self.is_broken = False
        self.has_begun = False
        self._heard: asyncio.Queue[psycopg.Notify | None] = asyncio.Queue()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        await self.world.travel(self)
        self.world.refuse_if_down()
        self._session = self.world.server.lend(self.world.draw.random())
        self.world.connections.append(self)

    def driver(self) -> SimDriver:
        return SimDriver(self)

    @property
    def closed(self) -> bool:
        return self.is_broken

    @property
    def is_idle(self) -> bool:
        return self._sent.done() and not (self.is_broken or self.has_begun)

    async def close(self) -> None:
        self.cut()

    async def ask_to_cancel(self, timeout_s: float) -> None:
        await self.world.travel(self)
        if self._session is not None:
            self.world.server.cancel(self._session)

    def cut(self) -> None:
        """Break it: who waits for its answer gets an error, and the server ends its session once it
        has done with its statement, whether or not the process lives to hear of it."""
        if self.is_broken:
            return
        self.is_broken = True
        self._heard.put_nowait(None)
        if not self._lost.done():
            self._lost.set_result(None)
        if self in self.world.connections:
            self.world.connections.remove(self)
        self._sent.add_done_callback(self._give_back, context=Context())

    async def listen(self, *channels: str) -> None:
        for channel in channels:
            self.world.listen(channel, self)

    async def notifies(self, *, timeout: float) -> AsyncIterator[psycopg.Notify]:
        until = asyncio.get_running_loop().time() + timeout
        while True:
            try:
                async with asyncio.timeout_at(until):
                    heard = await self._heard.get()
            except TimeoutError:
                return
            if heard is None or self.is_broken:
                raise psycopg.OperationalError("the connection was lost")
            yield heard

    def hear(self, channel: str, payload: str) -> None:
        self._heard.put_nowait(psycopg.Notify(channel, payload, 0))

    async def execute(self, text: bytes, call: Call) -> list[Row]:
        """Send a call to the server and wait for its answer. Whoever stops waiting has lost the
        connection; the server goes on."""
        if self.is_broken:
            raise psycopg.OperationalError("the connection is closed")
        self._sent = sending = self.world.apart(self.world.execute(self, self._session, text, call))
        sending.add_done_callback(_hear_error)
        try:
            await asyncio.wait([sending, self._lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sending.done():
                self.cut()
        if not sending.done():
            raise psycopg.OperationalError("the connection was lost")
        answer: list[Row] = sending.result()
        return answer

    def _give_back(self, _: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            self.world.server.take_back(session)


def _hear_error(sent: asyncio.Future[Any]) -> None:
    """Nobody else hears of the error of a process that is dead."""
    if not sent.cancelled():
        sent.exception()


class SimDriver:
    """The driver for one operation."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS
    psycopg_connection = None

    def __init__(self, connection: SimConnection) -> None:
        self._connection = connection

    async def run(self, text: bytes, params: Params | None) -> list[Row]:
        return await self._connection.execute(text, lambda real: real.run(text, params))

    async def run_each(self, text: bytes, each: Iterable[Params]) -> list[Row]:
        given = list(each)
        return await self._connection.execute(text, lambda real: real.run_each(text, given))

    @property
    def joins_transaction(self) -> bool:
        return self._connection.has_begun

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        connection = self._connection
        is_outer = not connection.has_begun
        await self.run(b"begin" if is_outer else b"savepoint inner_one", None)
        connection.has_begun = True
        try:
            yield
        except BaseException:
            if not connection.is_broken:
                await self.run(b"rollback" if is_outer else b"rollback to inner_one", None)
                connection.has_begun = not is_outer
            raise
        await self.run(b"commit" if is_outer else b"release inner_one", None)
        connection.has_begun = not is_outer

    def translate(self, error: Exception) -> StoreError:
        return translate(error)
