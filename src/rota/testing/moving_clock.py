"""Moves the clocks of a test: the database's, and Python's if `time-machine` is installed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rota.client.schedules import EVER
from rota.errors import UsageError
from rota.model.cron import next_fire, read
from rota.model.schedule import Due, Plan, plan
from rota.model.units import Duration, plural, seconds
from rota.store import ops
from rota.store.driver import Operation, Query

try:
    import time_machine
except ImportError:  # without it only the database's clock moves
    time_machine = None  # type: ignore[assignment]

PORTION = 100
"""Schedules that are read at once."""
TICKS_MAX = 1_000
"""Most moments at which schedules fire in one move: each takes some milliseconds."""


class MovingClock:
    """The clock of one test's database. It runs `offset` ahead, or stands still at `frozen_at`."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self.offset = timedelta()
        self.frozen_at: datetime | None = None
        self.is_moved = False
        """Whether the clock may differ from the server's, also after a failed move."""
        self._travel: Any = None

    def advance(self, by: Duration) -> Operation[datetime]:
        """Move the clock forward, and fire the schedules on the way; return the time then."""
        delta = timedelta(seconds=seconds(by, name="by"))
        now = yield from _read_now()
        yield from self._fire_until(now + delta)
        if self.frozen_at is None:
            self.offset += delta
        else:
            self.frozen_at = now + delta
        yield from self._set()
        yield from _fire()
        self._move_python(now + delta)
        return now + delta

    def freeze(self, at: datetime | None) -> Operation[datetime]:
        """Stop the clock at an instant; None: now. `Harness.freeze` says what fires."""
        given: object = at
        if given is not None and (not isinstance(given, datetime) or given.utcoffset() is None):
            raise UsageError(f"freeze takes an aware datetime, not {at!r}")
        now = yield from _read_now()
        to = now if at is None else at
        sets_scene = not self.is_moved or to < now
        if not sets_scene:
            yield from self._fire_until(to)
        self.frozen_at = to
        yield from self._set()
        yield from _plan_anew(to) if sets_scene else _fire()
        self._move_python(to)
        return to

    def restore(self) -> Operation[None]:
        """Let the database's clock show the server's time again."""
        self.offset, self.frozen_at = timedelta(), None
        yield from self._set()
        self.is_moved = False

    def restore_python(self) -> None:
        """Let Python's clock show the system's time again."""
        if self._travel is not None:
            self._travel.stop()
            self._travel = None

    def _fire_until(self, to: datetime) -> Operation[None]:
        """Fire the schedules tick by tick, each at its moment, to before `to`."""
        yield from _fire()  # what was due before
        for _ in range(TICKS_MAX):
            at = yield from _find_next_tick()
            if at is None or at >= to:
                return
            yield from self._set(at)
            yield from _fire()
        raise UsageError(
            f"the schedules have more than {plural(TICKS_MAX, 'tick')} on the way to {to}: move "
            "the clock in smaller steps, and drain in between"
        )

    def _set(self, at: datetime | None = None) -> Operation[None]:
        """Replace the function that tells the time; `at`: for a moment."""
        self.is_moved = True
        at = at or self.frozen_at
        if at is not None:
            shown = f"timestamptz ''{at.astimezone(UTC).isoformat()}''"
        else:
            microseconds = self.offset // timedelta(microseconds=1)
            shown = "pg_catalog.statement_timestamp()"
            if microseconds:
                shown += f" + {microseconds} * interval ''1 microsecond''"
        command = (
            f"create or replace function {self._schema}.clock() returns timestamptz "
            f"language sql stable parallel safe as 'select {shown}'"
        )
        yield Query("clock", command=command)

    def _move_python(self, to: datetime) -> None:
        if time_machine is not None:
            self.restore_python()
            # In UTC: another zone would become the process's zone.
            self._travel = time_machine.travel(to.astimezone(UTC), tick=self.frozen_at is None)
            self._travel.start()


def _read_now() -> Operation[datetime]:
    return (yield from ops.schedules_due(EVER, 1)).now


def _find_next_tick() -> Operation[datetime | None]:
    now = yield from _read_now()
    ticks = [
        schedule.next_run_at
        for schedule in (yield from ops.schedules())
        if schedule.is_active and schedule.next_run_at is not None and schedule.next_run_at > now
    ]
    return min(ticks, default=None)


def _plan_anew(now: datetime) -> Operation[None]:
    """Announce the first tick after `now` of each schedule anew."""
    for schedule in (yield from ops.schedules()):
        if schedule.is_active and schedule.cron is not None:
            due = Due(
                schedule.name, schedule.cron, schedule.timezone, schedule.catch_up,
                schedule.jitter_s, schedule.next_run_at, schedule.since,
            )  # fmt: skip
            then = next_fire(read(schedule.cron, schedule.timezone), now)
            if then is not None:
                yield from ops.advance(due, Plan((), then, 0))


def _fire() -> Operation[None]:
    agenda = yield from ops.schedules_due(EVER, PORTION)
    if agenda.is_paused:
        return
    for due in agenda.due:
        answer = yield from ops.advance(due, plan(due, agenda.now))
        if isinstance(answer, ops.RefusedRun):
            raise UsageError(f"schedule {due.name!r}: {answer.reason}")
