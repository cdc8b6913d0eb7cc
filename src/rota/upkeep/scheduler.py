"""Turns ticks of schedules into jobs. Every worker tries; the database lets one do each tick."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.declare.release import VERSION
from rota.errors import DatabaseUnavailable, UsageError
from rota.model.schedule import Due, Plan, plan
from rota.observe.events import (
    Bus,
    RunEnqueued,
    RunSkipped,
    RunsMissed,
    ScheduleDisabled,
    ScheduleRefused,
)
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.throttle import Throttle
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.quarantine import Quarantine
from rota.upkeep.sweeper import Sweeper

PAUSE_S_MIN = 0.01
PORTION = 100
DISABLE_PERIOD_S = 60.0
"""Longest pause, in seconds. Before a tick, the scheduler also looks for schedules to disable."""
LOG_S = 3600.0
"""The same refusal is reported at most once in so many seconds."""
REFUSED_S = (5.0, 300.0)
"""The first and the longest pause before a refused tick is tried again."""
UNREAD_S = 60.0
"""How late a tick is when a worker reports that it cannot read the schedule. It does not touch the
row before: its lock would keep away workers that can."""
WAITS_S = 20.0
"""How long a pass continues past schedules that wait for a lock: each costs its timeout."""


class Scheduler(Sweeper):
    """One pass plans new schedules, enqueues due runs, and announces the next ticks. It waits for
    them exactly, even if another worker is asked for changes: that worker may die."""

    name = "scheduler"
    asked_every_s = 3.0
    """How soon a new or changed row is planned, about."""

    def __init__(self, bus: Bus, link: StoreLink, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(bus, link, clock)
        self._disable_at = 0.0
        self._lines = Throttle(clock, LOG_S)
        self._refused: Quarantine[tuple[str, ...]] = Quarantine(clock, *REFUSED_S)
        """Schedules that this worker cannot read, or whose job was refused, until they change."""

    async def tick(self) -> float | None:
        """Do one pass; return 0 if there may be more, otherwise the seconds until the next tick."""
        before = self.clock.monotonic()
        if before >= self._disable_at:
            for name in await self._link.run(ops.disable_schedules()):
                self.bus.emit(ScheduleDisabled(schedule=name))
            self._disable_at = before + DISABLE_PERIOD_S
            self._refused.release_accepted()
        before = self.clock.monotonic()
        most = self._count_most()
        agenda = await self._link.run(ops.schedules_due(self.reading.begin(), most))
        if agenda.is_paused:
            return None  # ticks that come due meanwhile are read after the pause
        announced = await self._advance_all(agenda, waits_until=before + WAITS_S)
        if len(agenda.due) >= most and (announced or self._count_most() > most):
            return 0
        took_s = self.clock.monotonic() - before
        self.reading.end(agenda.now, took_s)
        waits_s = [(at - agenda.now).total_seconds() for at in announced]
        if agenda.next_in_s is not None:
            waits_s.append(agenda.next_in_s)
        pauses_s = [max(PAUSE_S_MIN, wait_s - took_s) for wait_s in waits_s]
        return min([DISABLE_PERIOD_S, *pauses_s])

    def _count_most(self) -> int:
        """Return how many schedules a pass reads: waiting schedules stay due, before all others."""
        return PORTION + len(self._refused.cases)

    async def _advance_all(self, agenda: ops.Agenda, *, waits_until: float) -> list[datetime]:
        """Advance the due schedules; return the next ticks. Raises DatabaseUnavailable; if only one
        schedule has to wait, after the others."""
        announced: list[datetime] = []
        refusal: DatabaseUnavailable | None = None
        for due in agenda.due:
            if self._refused.is_waiting(due.definition):
                continue
            try:
                at = await self._advance(due, agenda.now)
            except DatabaseUnavailable as error:
                if not error.refused or self.clock.monotonic() > waits_until:
                    raise
                refusal = error
            else:
                announced += [] if at is None else [at]
        if refusal is not None:
            raise refusal
        return announced

    async def _advance(self, due: Due, now: datetime) -> datetime | None:
        """Advance a schedule; return its next tick; None: another worker did, or it has no plan."""
        try:
            decided = plan(due, now)
        except UsageError as error:
            if due.unfit is None:
                await self._leave(due, now, str(error))
            else:
                await self._refuse(due, due.unfit)
            return None
        answer = await self._link.run(ops.advance(due, decided))
        if isinstance(answer, ops.RefusedRun):
            self._put_off(due, answer.reason)
            await self._link.run(ops.fail_tick(due, answer.reason))
            return None
        self._refused.release(due.definition)
        if answer is None:
            return None
        self._report(due, decided, answer)
        return decided.next_run_at

    async def _refuse(self, due: Due, why: str) -> None:
        if await self._link.run(ops.refuse(due, why)):
            self.bus.emit(ScheduleRefused(schedule=due.name, reason=why, paused=True))

    async def _leave(self, due: Due, now: datetime, why: str) -> None:
        """Leave a schedule to workers that can read it: of a newer Rota, or newer time zones."""
        why = f"a worker of Rota {VERSION} cannot read it, and leaves it to others: {why}"
        self._put_off(due, why)
        if (now - (due.next_run_at or due.since)).total_seconds() > UNREAD_S:
            await self._link.run(ops.fail_tick(due, why))

    def _put_off(self, due: Due, why: str) -> None:
        self._refused.put(due.definition)
        if self._lines.allows(due.definition):
            self.bus.emit(ScheduleRefused(schedule=due.name, reason=why, paused=False))

    def _report(self, due: Due, decided: Plan, done: list[ops.Done]) -> None:
        if decided.missed:
            self.bus.emit(
                RunsMissed(
                    schedule=due.name,
                    runs=decided.missed,
                    is_more=decided.is_more,
                    next_run_at=decided.next_run_at,
                )
            )
        for tick in done:
            run: Any = {"schedule": due.name, "job": tick.job, "scheduled_for": tick.scheduled_for}
            if tick.live is None:
                self.bus.emit(RunEnqueued(**run))
            else:
                self.bus.emit(RunSkipped(**run, live=tick.live))
