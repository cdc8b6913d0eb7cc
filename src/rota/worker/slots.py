"""Slots that some queues share, and the claimed jobs that wait for one. Only counts and queues: the
executor starts jobs. A call for many jobs counts as one, because it needs one slot.

A job with a priority above 0 is *urgent*, any other is *ordinary*. Ordinary jobs leave some slots
free, so that an urgent job never waits for slow ordinary ones to end.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.worker.attempt import Attempt

PREFETCH_MAX = 1_000
"""Most jobs claimed ahead of free slots."""
PREFETCH_S = 0.1
"""Prefetch as many jobs as the worker finished in this time: enough to cover a claim's round trip,
and no more, because no idle worker can take a job that lies in a buffer."""
ORDINARY_MAX = 0
"""The highest priority of an ordinary job."""
URGENT_S = 0.5
"""Seconds between two searches for urgent jobs alone, while ordinary jobs have all their slots. A
search for any jobs is one for urgent jobs too."""
URGENT_LEAST_S = 0.05
"""The same when a wake-up ends the pause: it may have come for ordinary jobs."""


class SlotGroup:
    """The slots and the buffer of some queues. Within one priority jobs start as claimed."""

    __slots__ = (
        "_aside",
        "_aside_until",
        "_buffer",
        "_rated_at",
        "_rated_ended",
        "_rated_urgent",
        "_searched_at",
        "_urgent_aside",
        "asked",
        "ended",
        "held",
        "jobs_a_slot",
        "low",
        "ordinary_low",
        "ordinary_slots",
        "ordinary_target",
        "queues",
        "running",
        "search_at",
        "slots",
        "target",
        "urgent_asked",
        "urgent_ended",
        "urgent_running",
        "urgent_waiting",
        "waiting",
    )

    def __init__(
        self, queues: tuple[str, ...], slots: int, now: float, urgent_slots: int = 0
    ) -> None:
        self.queues = queues
        self.slots = slots
        self.ordinary_slots = slots - urgent_slots
        """Slots that ordinary jobs may take."""
        self.running = 0
        """Jobs that have a slot."""
        self.waiting = 0
        """Jobs in the buffer."""
        self.asked = 0
        """Jobs for which the gatekeeper has no answer yet, and calls that wait for more jobs."""
        self.jobs_a_slot = 1.0
        """How many of the jobs that were claimed last one slot can run at once."""
        self.held = 0
        """Jobs that the gatekeeper holds back for a while. They take no other job's place."""
        self.ended = 0
        """Jobs that had a slot."""
        # The urgent ones of each: nearly all jobs are ordinary, and counted once.
        self.urgent_running = self.urgent_waiting = self.urgent_asked = self.urgent_ended = 0
        self.target = slots
        """How many jobs to have: one for each slot, and those claimed ahead."""
        self.low = slots // 2
        """With this many jobs or fewer, claim again."""
        self.ordinary_target = self.ordinary_slots
        """As `target`, of ordinary jobs: how quickly urgent ones end says nothing of these."""
        self.ordinary_low = self.ordinary_slots // 2
        self._buffer: dict[int, deque[Attempt]] = {}
        self._aside: deque[Attempt] = deque()
        """Jobs that wait at a gate, and suspects, which wait for each other. No other job waits for
        them."""
        self._urgent_aside = 0
        """The urgent ones of these."""
        self._aside_until = 0.0
        """When the gate that held them back is asked again."""
        self.search_at = 0.0
        """When urgent jobs alone are searched for; 0: at once."""
        self._searched_at = now
        self._rated_at = now
        self._rated_ended = self._rated_urgent = 0

    @property
    def startable(self) -> int:
        """How many of the jobs in the buffer have a free slot, if no gate holds them back."""
        count, free = self.waiting, self.slots - self.running
        ordinary = count - self.urgent_waiting
        room = self.ordinary_slots - self.running + self.urgent_running
        if ordinary > room:
            count -= ordinary - max(0, room)
        return count if count < free else free

    @property
    def wanted(self) -> int:
        """How many jobs to claim now, also if only urgent ones may be among them.

        None while enough are here, so claims are few and full. But ordinary jobs in the buffer are
        never enough: an urgent one would get a slot before them.
        """
        return max(self._wanted_of_all, self._urgent_room)

    @property
    def wanted_ordinary(self) -> int:
        """How many ordinary jobs may be among those to claim now."""
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
        if count > self.low and count >= self.slots and not self._aside:
            return False  # nearly always: each turn of the loop asks
        return self.wanted_ordinary > 0

    def is_search_due(self, now: float) -> bool:
        """Whether it is time to claim, if only urgent jobs are wanted."""
        return now >= self.search_at

    def note_search(self, now: float, *, has_more: bool) -> None:
        """Note that a claim searched for urgent jobs, and whether it may have left some."""
        self._searched_at = now
        self.search_at = 0.0 if has_more else now + URGENT_S

    def hasten_search(self) -> None:
        """Search for urgent jobs soon: one may have come."""
        self.search_at = min(self.search_at, self._searched_at + URGENT_LEAST_S)

    @property
    def _occupied(self) -> int:
        """The jobs that run or wait for a slot, or for the gatekeeper's first answer.

        Up to a thousand jobs that wait aside do not count: they take no other job's place.
        """
        count = self.running + self.waiting + self.asked
        return count - min(len(self._aside), PREFETCH_MAX) if self._aside else count

    @property
    def _occupied_by_urgent(self) -> int:
        count = self.urgent_running + self.urgent_waiting + self.urgent_asked
        return count - min(self._urgent_aside, PREFETCH_MAX) if self._urgent_aside else count

    @property
    def _urgent_room(self) -> int:
        """The slots that neither have a job nor will have one of the urgent jobs that wait."""
        return self.slots - self.running + self.urgent_running - self._occupied_by_urgent

    @property
    def _wanted_of_all(self) -> int:
        """How many jobs to claim, as far as it does not matter which."""
        count = self._occupied
        return self.target - count if count <= self.low or count < self.slots else 0

    def measure(self, now: float) -> None:
        """Adjust the targets to the rates at which jobs have ended."""
        took_s = now - self._rated_at
        if took_s < 0.001:
            return
        ended = self.ended - self._rated_ended
        ordinary = ended - (self.urgent_ended - self._rated_urgent)
        self.target = _adjust(self.target, self.slots, ended, took_s)
        self.low = self.target // 2
        self.ordinary_target = _adjust(self.ordinary_target, self.ordinary_slots, ordinary, took_s)
        self.ordinary_low = self.ordinary_target // 2
        self._rated_at = now
        self._rated_ended, self._rated_urgent = self.ended, self.urgent_ended

    def take_slot(self, attempt: Attempt) -> None:
        """Count a job that gets a slot."""
        self.running += 1
        if attempt.job.priority > ORDINARY_MAX:
            self.urgent_running += 1

    def free_slot(self, attempt: Attempt) -> None:
        """Count a job that leaves its slot."""
        self.running -= 1
        self.ended += 1
        if attempt.job.priority > ORDINARY_MAX:
            self.urgent_running -= 1
            self.urgent_ended += 1
            self.search_at = 0.0  # more of its kind may be due

    def push(self, attempt: Attempt) -> None:
        """Put a claimed job into the buffer."""
        priority = attempt.job.priority
        self.waiting += 1
        if priority > ORDINARY_MAX:
            self.urgent_waiting += 1
        if attempt.is_suspect:
            self._aside.append(attempt)
            self._urgent_aside += priority > ORDINARY_MAX
            return
        jobs = self._buffer.get(priority)
        if jobs is None:
            jobs = self._buffer[priority] = deque()
        jobs.append(attempt)

    def push_first(self, attempts: Sequence[Attempt]) -> None:
        """Put jobs that the gatekeeper held into the buffer, before the others of their
        priority."""
        for attempt in reversed(attempts):
            self.push(attempt)
            if not attempt.is_suspect:
                self._buffer[attempt.job.priority].rotate(1)

    def note_gathered(self, call: Attempt, change: int) -> None:
        """Note that a call begins to wait for more jobs, or ends to: −1."""
        self._count_asked(call, change)

    def note_claimed(self, jobs: int, slots: float) -> None:
        """Note how many slots so many claimed jobs need: a slot may run many at once."""
        self.jobs_a_slot = jobs / slots

    def count_jobs(self, slots: int) -> int:
        """Return how many jobs to claim for so many slots."""
        if self.jobs_a_slot == 1.0:
            return slots
        return min(ceil(slots * self.jobs_a_slot), max(slots, PREFETCH_MAX))

    def ask(self, attempt: Attempt) -> None:
        """Note that the gatekeeper has a new job of these queues."""
        self._count_asked(attempt, 1)

    def hold(self, attempt: Attempt) -> None:
        """Note that the gatekeeper holds a job back, which it had before or takes back."""
        assert attempt.ticket is not None
        if not attempt.ticket.is_held:
            attempt.ticket.is_held = True
            self.held += 1
            if not attempt.ticket.let_in_at:
                self._count_asked(attempt, -1)

    def let_go(self, attempt: Attempt) -> None:
        """Note that the gatekeeper has a job no more."""
        assert attempt.ticket is not None
        if attempt.ticket.is_held:
            attempt.ticket.is_held = False
            self.held -= 1
        else:
            self._count_asked(attempt, -1)

    def _count_asked(self, attempt: Attempt, change: int) -> None:
        self.asked += change
        if attempt.job.priority > ORDINARY_MAX:
            self.urgent_asked += change

    def note_put_back(self, attempt: Attempt) -> None:
        """Count a job that the gatekeeper ended as one that had a slot."""
        self.ended += 1
        if attempt.job.priority > ORDINARY_MAX:
            self.urgent_ended += 1

    def pop(self, most: int, now: float) -> list[Attempt]:
        """Take the next jobs to start: of the highest priority, the first claimed; ordinary ones
        only for the slots that are left for them."""
        batch: list[Attempt] = []
        buffer, aside = self._buffer, self._aside
        room = max(0, self.ordinary_slots - self.running + self.urgent_running)
        while len(batch) < most and (buffer or aside):
            priority = None
            if buffer:
                priority = max(buffer) if len(buffer) > 1 else next(iter(buffer))
                if priority <= ORDINARY_MAX and not room:
                    priority = None
            next_aside = self._find_aside(now, has_room=room > 0) if aside else None
            if next_aside is not None and (priority is None or next_aside.job.priority >= priority):
                aside.remove(next_aside)
                batch.append(next_aside)
                self._urgent_aside -= next_aside.job.priority > ORDINARY_MAX
                priority, count = next_aside.job.priority, 1
            elif priority is None:
                break
            else:
                count = 1 if aside else min(len(buffer[priority]), most - len(batch))
                if priority <= ORDINARY_MAX and count > room:
                    count = room
                batch += self._take(priority, count)
            if priority > ORDINARY_MAX:
                self.urgent_waiting -= count
            else:
                room -= count
        self.waiting -= len(batch)
        return batch

    def _take(self, priority: int, count: int) -> list[Attempt]:
        """Take so many jobs of a priority out of the buffer."""
        jobs = self._buffer[priority]
        if count == len(jobs):
            del self._buffer[priority]
            return list(jobs)
        return [jobs.popleft() for _ in range(count)]

    def _find_aside(self, now: float, *, has_room: bool) -> Attempt | None:
        """Return the first job that waits aside and may be asked for now."""
        if now < self._aside_until:
            return None
        if has_room:
            return self._aside[0]
        return next((one for one in self._aside if one.job.priority > ORDINARY_MAX), None)

    def put_aside(self, attempts: list[Attempt], until: float) -> None:
        """Take back jobs that a gate held back; they are not popped again before `until`."""
        urgent = sum(attempt.job.priority > ORDINARY_MAX for attempt in attempts)
        self.waiting += len(attempts)
        self.urgent_waiting += urgent
        self._urgent_aside += urgent
        self._aside.extendleft(reversed(attempts))
        self._aside_until = until

    def release(self) -> None:
        """Let the jobs that wait aside be popped at once."""
        self._aside_until = 0.0

    def take_stale(self, claimed_before: float) -> list[Attempt]:
        """Take the jobs that were claimed before a time, or let in by the gatekeeper, and still
        wait."""
        waiting = [one for jobs in (*self._buffer.values(), self._aside) for one in jobs]
        stale = [attempt for attempt in waiting if attempt.buffered_at < claimed_before]
        if stale:
            self._buffer.clear()
            self._aside.clear()
            self.release()  # what the gate said was of a job that may have gone
            self.waiting = self.urgent_waiting = self._urgent_aside = 0
            # They were claimed too far ahead.
            self.target, self.low = self.slots, self.slots // 2
            self.ordinary_target = self.ordinary_slots
            self.ordinary_low = self.ordinary_slots // 2
            self.jobs_a_slot = 1.0
            for attempt in waiting:
                if attempt.buffered_at >= claimed_before:
                    self.push(attempt)
        return stale


def _adjust(target: int, slots: int, ended: int, took_s: float) -> int:
    """Return a target that is half the way nearer to what a rate asks for."""
    ahead = min(PREFETCH_MAX, int(ended / took_s * PREFETCH_S))
    return slots + (ahead + target - slots) // 2
