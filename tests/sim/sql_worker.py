"""A worker of a simulated world that works with the functions of SQL alone, as one in another
language does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from tests.sim.database import SimDatabase
from tests.sim.handlers import Handlers
from tests.sim.judge import LEASE_S
from tests.sim.kinds import BY_SQL, LASTS_S

if TYPE_CHECKING:
    from tests.sim.loop import Process
    from tests.sim.world import World

CLAIM = """select id, claims, job_type, payload ->> 'n'
  from rota.claim('default', %(types)s::text[], %(worker)s)"""


class SqlWorker:
    """It takes one job at a time."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._name = process.name
        self._handlers = Handlers(world, process)
        self._database = SimDatabase(world, process)
        self._connection: Any = None
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        types = "{" + ",".join(BY_SQL) + "}"
        while not self._is_stopping:
            claimed = await self._ask(CLAIM, types=types, worker=self._name)
            for id_, claim, name, n in claimed:
                await self._work(int(id_), int(claim), name, int(n))
            if not claimed:
                await asyncio.sleep(1)
        await self._ask("select rota.worker_leave(%(worker)s)", worker=self._name)

    async def _work(self, id_: int, claim: int, name: str, n: int) -> None:
        given = {"id": id_, "claim": claim}
        try:
            with self._handlers.running(name, id_, claim, n):
                left_s = self._world.draw.choice(LASTS_S)
                while left_s > 0:
                    await asyncio.sleep(min(left_s, LEASE_S / 3))
                    left_s -= LEASE_S / 3
                    await self._ask("select rota.worker_renew(%(id)s, %(claim)s)", **given)
            await self._ask("select rota.succeed(%(id)s, %(claim)s)", **given)
        except psycopg.DatabaseError as error:
            if error.sqlstate != "RT001":  # the job belongs to another claim
                raise

    async def _ask(self, text: str, **given: Any) -> list[Any]:
        """Ask until there is an answer."""
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._database.connect("sql")
                answer: list[Any] = await self._connection.driver().run(text.encode(), given)
                return answer
            except psycopg.OperationalError as error:
                if error.sqlstate is not None:
                    raise
                self._connection = None
                await asyncio.sleep(1)
