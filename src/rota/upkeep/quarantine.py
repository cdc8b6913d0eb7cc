"""Jobs that the database refuses: retried after growing pauses, and reported in the log."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from rota.model.back_off import BackOff
from rota.observe.events import Bus, UpkeepRefused
from rota.runtime.clock import Clock
from rota.runtime.throttle import Throttle
from rota.store.isolate import Refusals

Key = TypeVar("Key", bound=Hashable)

LOG_S = 3600.0
"""Seconds between two reports of the same job."""
REPORTED_MAX = 20
"""Most jobs reported within `REPORTED_S`; further jobs are reported at their next refusals."""
REPORTED_S = 60.0


class RefusalLog:
    """Reports which jobs the database refuses to one service."""

    def __init__(self, bus: Bus, service: str, clock: Clock) -> None:
        self._bus = bus
        self._service = service
        self._throttle = Throttle(clock, LOG_S, most=REPORTED_MAX, within_s=REPORTED_S)

    def report(self, refusals: Refusals) -> None:
        """Report refusals that were not reported lately, up to REPORTED_MAX."""
        for job, reason in refusals.items():
            if self._throttle.allows(job):
                self._bus.emit(UpkeepRefused(service=self._service, job=job, reason=reason))


class Case(msgspec.Struct):
    """One job that the database refuses. Times are monotonic seconds."""

    since: float
    again_at: float
    pauses: BackOff
    reported: str | None = None
    """What an event has reported of the job; None: nothing yet."""


class Quarantine(Generic[Key]):
    """The jobs that the database refuses to one service, and when each is tried again."""

    def __init__(self, clock: Clock, first_s: float, most_s: float) -> None:
        self._clock = clock
        self._first_s = first_s
        self._most_s = most_s
        self.cases: dict[Key, Case] = {}
        """In the order of their first refusals. To be read only."""

    def put(self, key: Key) -> Case:
        """Retry a refused job later, after twice the last pause."""
        now = self._clock.monotonic()
        case = self.cases.get(key)
        if case is None:
            case = self.cases[key] = Case(now, now, BackOff(self._first_s, self._most_s))
        case.again_at = now + case.pauses.next_s()
        return case

    def release(self, key: Key) -> None:
        self.cases.pop(key, None)

    def release_accepted(self) -> None:
        """Forget jobs that were due for another try long ago, and were not refused again."""
        long_ago = self._clock.monotonic() - self._most_s
        self.cases = {key: case for key, case in self.cases.items() if case.again_at > long_ago}

    def find_due(self) -> list[Key]:
        now = self._clock.monotonic()
        return [key for key, case in self.cases.items() if case.again_at <= now]

    def find_waiting(self) -> list[Key]:
        now = self._clock.monotonic()
        return [key for key, case in self.cases.items() if case.again_at > now]

    def is_waiting(self, key: Key) -> bool:
        case = self.cases.get(key)
        return case is not None and case.again_at > self._clock.monotonic()

    def next_in_s(self) -> float | None:
        """Return in how many seconds the next job is due; None: there is no job."""
        if not self.cases:
            return None
        next_at = min(case.again_at for case in self.cases.values())
        return max(0.0, next_at - self._clock.monotonic())
