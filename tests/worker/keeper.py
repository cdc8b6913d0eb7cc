"""A lease keeper turned by hand, on the test's own loop and clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import rota
from rota.declare.context import Context
from rota.observe.events import Bus
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.lease_keeper import LeaseKeeper
from tests.store.work import Hand, insert
from tests.support.clock import ManualClock
from tests.worker.alone import Others
from tests.worker.hand import make_spec
from tests.worker.table import Connection


class KeptByHand:
    """One claimed job with a lease of two minutes, which the keeper does not know before `hold` is
    called."""

    def __init__(self, database: str, connection: Connection) -> None:
        jobs = rota.Jobs()
        jobs.job("t")(_nothing)
        self.clock = ManualClock()
        spec = make_spec(jobs)
        claimant = Hand(connection, name=spec.name, lease=timedelta(minutes=2))
        insert(connection)
        [self.job] = claimant.claim().jobs
        self.job_type = jobs.types["t"]
        self.cancelled: list[tuple[int, str | None]] = []
        self.lost: list[int] = []
        self.attempts: dict[int, Attempt] = {}
        self.others = Others()
        hears: Any = self
        stands: Any = self.others
        link, loop = StoreLink(Database(database), "lease"), asyncio.get_running_loop()
        self.keeper = LeaseKeeper(
            spec, Bus(), self.clock, link, loop, hears, stands, stands, stands
        )

    @property
    def attempt(self) -> Attempt:
        """The one that is held."""
        return self.attempts[self.job.id]

    def hold(self) -> Context:
        """The answer of the claim has come, and the job runs."""
        now = self.clock.monotonic()
        attempt = self.attempts[self.job.id] = Attempt(
            self.job, self.job_type._declaration, now, 120.0
        )
        Attempt.admit([attempt])
        context = Context(self.job, "hand", None, self.keeper.note_progress)
        Attempt.begin([attempt], None, lambda _: context)
        attempt.take_first_step(now)
        return attempt.open_context()

    async def check_cancels(self) -> float | None:
        """Another process wakes the keeper, and it takes its turn."""
        self.keeper.check_cancels()
        await asyncio.sleep(0)
        pause_s = await self.keeper.tick()
        await asyncio.sleep(0)  # what it says to the worker's loop
        return pause_s

    def cancel(self, attempt: Attempt, why: str | None) -> None:
        """Of the executor: a job was cancelled."""
        self.cancelled.append((attempt.job.id, why))

    def lose(self, attempt: Attempt) -> None:
        """Of the executor: a lease was lost."""
        self.lost.append(attempt.job.id)


def _nothing() -> None: ...
