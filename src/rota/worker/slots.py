"""Slots that some queues share, and the claimed jobs that wait for a slot. The executor starts the
jobs. A pack of jobs that share a slot counts as one job. A job with a priority above 0 is *urgent*,
any other is *ordinary*. Ordinary jobs leave some slots free, so that an urgent job never waits for
slow ordinary jobs to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Any, Protocol

from rota.model.job import Job

PREFETCH_S = 0.1
"""Prefetch as many jobs as ended in this time: enough for a claim's round trip, and no more,
because no idle worker can take a job that lies in a buffer."""
PREFETCH_BYTES = 16_000_000
"""The most bytes of payloads of prefetched jobs, about."""
PREFETCH_MAX = 10_000
CLAIM_MAX = 1_000
"""Most jobs of one claim, or the slots if they are more. The next claim is sent when so many are
missing: its answer comes before the buffer is empty."""
ORDINARY_MAX = 0
URGENT_S = 0.5
"""Seconds between two searches for urgent jobs alone, while ordinary jobs have all their slots."""
URGENT_LEAST_S = 0.05
"""Seconds from a search to the next after a wake-up, which may have come for ordinary jobs."""


class Unit(Protocol):
    """What waits for a slot: an attempt, or a pack of attempts."""

    @property
    def job(self) -> Job: ...
    @property
    def buffered_at(self) -> float:
        """Since when it waits for a slot; if held, when it will begin to wait."""


class SlotGroup:
    """The slots and the buffer of some queues. Within one priority jobs start as claimed."""

    def __init__(
        self, queues: tuple[str, ...], slots: int, now: float, urgent_slots: int = 0
    ) -> None:
        self.queues = queues
        self.slots = slots
        self.ordinary_slots = slots - urgent_slots
        self.running = 0
        self.waiting = 0
        self.coming = 0
        """Claimed jobs that are not in the buffer yet, even if held or waiting for breakers."""
        self.held: list[Any] = []
        """What goes into the buffer later."""
        self.jobs_a_slot = 1.0
        """How many of the last claimed jobs one slot can run at once."""
        self.ended = 0
        # The urgent jobs of each: nearly all jobs are ordinary, and counted once.
        self.urgent_running = self.urgent_waiting = self.urgent_coming = self.urgent_ended = 0
        self.target = slots
        """How many jobs to have: one for each slot, and the jobs claimed ahead."""
        self.low = slots // 2
        self.ordinary_target = self.ordinary_slots
        """How many ordinary jobs to have: the pace of urgent jobs says nothing of ordinary jobs."""
        self.ordinary_low = self.ordinary_slots // 2
        self.ahead_max = PREFETCH_MAX
        """Most jobs to claim ahead, by the size of the last claimed jobs."""
        self._buffer: dict[int, list[Any]] = {}
        self._oldest_at = inf
        """No job in the buffer has waited since before this time."""
        self.search_at = 0.0
        """When urgent jobs alone are searched for; 0: at once."""
        self._searched_at = now
        self._rated_at = now
        self._rated_ended = self._rated_urgent = 0

    # How many to claim

    @property
    def wanted(self) -> int:
        """How many jobs to claim now, even if only urgent jobs may be among them: 0 while enough
        are here, so claims are few and full. Ordinary jobs in the buffer are never enough: an
        urgent job would get a slot before them."""
        return max(self._wanted_of_all, self._urgent_room)

    @property
    def wanted_ordinary(self) -> int:
        """How many ordinary jobs may be among the jobs to claim now."""
        count = self._occupied - self._occupied_by_urgent
        if count > self.ordinary_low and count >= self.ordinary_slots:
            return 0
        return min(self.ordinary_target - count, self._wanted_of_all)

    @property
    def needs_claim(self) -> bool:
        """Whether to claim at once: not only because time has passed."""
        if not self.search_at:
            return self.wanted > 0
        count = self.running + self.waiting
        if count > self.low and count >= self.slots:
            return False  # nearly always: each turn of the loop asks
        return self.wanted_ordinary > 0

    @property
    def _occupied(self) -> int:
        return self.running + self.waiting + self.coming

    @property
    def _occupied_by_urgent(self) -> int:
        return self.urgent_running + self.urgent_waiting + self.urgent_coming

    @property
    def _urgent_room(self) -> int:
        """The slots that have no job, and for which no urgent job waits."""
        return self.slots - self.running + self.urgent_running - self._occupied_by_urgent

    @property
    def _wanted_of_all(self) -> int:
        """How many jobs to claim, as far as their kind does not matter."""
        count = self._occupied
        return self.target - count if count <= self.low or count < self.slots else 0

    def count_jobs(self, places: int) -> int:
        return min(ceil(places * self.jobs_a_slot), max(self.slots, CLAIM_MAX))

    def note_claimed(self, jobs: int, slots: float, payload_bytes: int) -> None:
        """Note how many jobs were claimed last, how many slots they need, and their size."""
        self.jobs_a_slot = jobs / slots
        self.ahead_max = min(PREFETCH_MAX, jobs * PREFETCH_BYTES // max(1, payload_bytes))

    def measure(self, now: float) -> None:
        took_s = now - self._rated_at
        ended = self.ended - self._rated_ended
        if took_s < (PREFETCH_S if ended <= self.slots else 0.001):
            return  # one quick job is no rate
        ordinary = ended - (self.urgent_ended - self._rated_urgent)
        self._aim(
            _adjust(self.target, self.slots, ended / took_s, self.ahead_max),
            _adjust(self.ordinary_target, self.ordinary_slots, ordinary / took_s, self.ahead_max),
        )
        self._rated_at = now
        self._rated_ended, self._rated_urgent = self.ended, self.urgent_ended

    def _aim(self, target: int, ordinary_target: int) -> None:
        self.target, self.ordinary_target = target, ordinary_target
        self.low, self.ordinary_low = _find_low(target), _find_low(ordinary_target)

    # When to search for urgent jobs

    def note_search(self, now: float, *, has_more: bool) -> None:
        self._searched_at = now
        self.search_at = 0.0 if has_more else now + URGENT_S

    def hasten_search(self) -> None:
        """Search for urgent jobs soon: an urgent job may have come."""
        self.search_at = min(self.search_at, self._searched_at + URGENT_LEAST_S)

    # What has a slot, and what waits for one

    @property
    def startable(self) -> int:
        count, free = self.waiting, self.slots - self.running
        ordinary = count - self.urgent_waiting
        room = self.ordinary_slots - self.running + self.urgent_running
        if ordinary > room:
            count -= ordinary - max(0, room)
        return count if count < free else free

    def take_slots(self, units: Sequence[Unit]) -> None:
        self.running += len(units)
        self.urgent_running += _count_urgent(units)

    def free_slots(self, units: Sequence[Unit]) -> None:
        self.running -= len(units)
        self.note_ended(units)
        if urgent := _count_urgent(units):
            self.urgent_running -= urgent
            self.search_at = 0.0  # more of its kind may be due

    def note_ended(self, units: Sequence[Unit]) -> None:
        """Count jobs that ended, even if they never had a slot."""
        self.ended += len(units)
        self.urgent_ended += _count_urgent(units)

    def note_coming(self, units: Sequence[Unit], change: int) -> None:
        """Note that jobs are on their way to the buffer: 1; or no longer: −1."""
        self.coming += change * len(units)
        self.urgent_coming += change * _count_urgent(units)

    def hold(self, units: Sequence[Unit]) -> None:
        self.held += units
        self.note_coming(units, 1)

    def release(self, now: float) -> None:
        due = [unit for unit in self.held if unit.buffered_at <= now]
        if due:
            self.push(self._take_held(due))

    def find_due_at(self) -> float:
        """Return when the next held job goes into the buffer; some job must be held."""
        return float(min([unit.buffered_at for unit in self.held]))

    def _take_held(self, units: list[Any]) -> list[Any]:
        gone = set(units)
        self.held = [unit for unit in self.held if unit not in gone]
        self.note_coming(units, -1)
        return units

    def push(self, units: Sequence[Unit], *, is_first: bool = False) -> None:
        """Put jobs into the buffer, after or before the others of their priority."""
        for priority in {unit.job.priority for unit in units}:
            alike = [unit for unit in units if unit.job.priority == priority]
            jobs = self._buffer.setdefault(priority, [])
            at = 0 if is_first else len(jobs)
            jobs[at:at] = alike
            self._oldest_at = min(self._oldest_at, alike[0].buffered_at)
        self.waiting += len(units)
        self.urgent_waiting += _count_urgent(units)

    def pop(self, most: int) -> list[Any]:
        """Take the next startable jobs: of the highest priority, the first claimed."""
        batch: list[Any] = []
        while self._buffer and len(batch) < most:
            priority = max(self._buffer)
            count = min(len(self._buffer[priority]), most - len(batch))
            batch += self._take(priority, count)
            if priority > ORDINARY_MAX:
                self.urgent_waiting -= count
        self.waiting -= len(batch)
        return batch

    def _take(self, priority: int, count: int) -> list[Any]:
        jobs = self._buffer[priority]
        if count == len(jobs):
            del self._buffer[priority]
            return jobs
        taken = jobs[:count]
        del jobs[:count]
        return taken

    def take_stale(self, before: float) -> list[Any]:
        """Take the jobs that have waited since before a time: they were claimed too far ahead."""
        if before <= self._oldest_at:
            return []  # nearly always: the buffer is read no more often than it gets stale
        stale = self.take(lambda unit: unit.buffered_at < before)
        if stale:
            self._aim(self.slots, self.ordinary_slots)
            self.jobs_a_slot = 1.0
        return stale

    def take(self, is_meant: Callable[[Any], bool]) -> list[Any]:
        """Take the meant jobs out of the buffer, and out of the held jobs."""
        held = self._take_held([unit for unit in self.held if is_meant(unit)])
        waiting = [unit for jobs in self._buffer.values() for unit in jobs]
        taken = [unit for unit in waiting if is_meant(unit)]
        if not taken:
            return held
        gone = set(taken)
        left = [unit for unit in waiting if unit not in gone]
        self._buffer.clear()
        self.waiting = self.urgent_waiting = 0
        self.push(left)
        self._oldest_at = min([unit.buffered_at for unit in left], default=inf)
        return held + taken


def _count_urgent(units: Sequence[Unit]) -> int:
    return len([1 for unit in units if unit.job.priority > ORDINARY_MAX])


def _adjust(target: int, slots: int, ended_a_second: float, most: int) -> int:
    """Return a target that is half the way nearer to what a rate asks for."""
    ahead = min(most, int(ended_a_second * PREFETCH_S))
    return slots + (ahead + target - slots) // 2


def _find_low(target: int) -> int:
    return max(target // 2, target - CLAIM_MAX)
