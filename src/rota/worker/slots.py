"""Slots that some queues share, and the claimed jobs that wait for one. Only counts and queues: the
executor starts jobs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.worker.attempt import Attempt

PREFETCH_MAX = 1_000
"""Most jobs claimed ahead of free slots."""
PREFETCH_S = 0.1
"""Prefetch as many jobs as the worker finished in this time: enough to cover a claim's round trip,
and no more, because no idle worker can take a job that lies in a buffer."""


class SlotGroup:
    """The slots and the buffer of some queues. Within one priority jobs start as claimed."""

    __slots__ = (
        "_aside",
        "_aside_until",
        "_buffer",
        "_rated_at",
        "_rated_ended",
        "asked",
        "ended",
        "held",
        "low",
        "queues",
        "running",
        "slots",
        "target",
        "waiting",
    )

    def __init__(self, queues: tuple[str, ...], slots: int, now: float) -> None:
        self.queues = queues
        self.slots = slots
        self.running = 0
        """Jobs that have a slot."""
        self.waiting = 0
        """Jobs in the buffer."""
        self.asked = 0
        """Jobs for which the gatekeeper has no answer yet."""
        self.held = 0
        """Jobs that the gatekeeper holds back for a while. They take no other job's place."""
        self.ended = 0
        self.target = slots
        """How many jobs to have: one for each slot, and those claimed ahead."""
        self.low = slots // 2
        """With this many jobs or fewer, claim again."""
        self._buffer: dict[int, deque[Attempt]] = {}
        self._aside: deque[Attempt] = deque()
        """Jobs that wait at a gate, and suspects, which wait for each other. No other job waits for
        them."""
        self._aside_until = 0.0
        """When the gate that held them back is asked again."""
        self._rated_at = now
        self._rated_ended = 0

    @property
    def occupied(self) -> int:
        """The jobs that run or wait for a slot, or for the gatekeeper's first answer.

        Up to a thousand jobs that wait aside do not count: they take no other job's place.
        """
        count = self.running + self.waiting + self.asked
        return count - min(len(self._aside), PREFETCH_MAX) if self._aside else count

    @property
    def wanted(self) -> int:
        """How many jobs to claim now: none while enough are here, so claims are few and full."""
        count = self.occupied
        return self.target - count if count <= self.low or count < self.slots else 0

    def measure(self, now: float) -> None:
        """Adjust the target to the rate at which jobs have ended."""
        took_s = now - self._rated_at
        if took_s < 0.001:
            return
        ended = self.ended - self._rated_ended
        ahead = min(PREFETCH_MAX, int(ended / took_s * PREFETCH_S))
        self.target = self.slots + (ahead + self.target - self.slots) // 2
        self.low = self.target // 2
        self._rated_at, self._rated_ended = now, self.ended

    def push(self, attempt: Attempt) -> None:
        """Put a claimed job into the buffer."""
        self.waiting += 1
        if attempt.is_suspect:
            self._aside.append(attempt)
            return
        priority = attempt.job.priority
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

    def ask(self) -> None:
        """Note that the gatekeeper has a new job of these queues."""
        self.asked += 1

    def hold(self, attempt: Attempt) -> None:
        """Note that the gatekeeper holds a job back, which it had before or takes back."""
        assert attempt.ticket is not None
        if not attempt.ticket.is_held:
            attempt.ticket.is_held = True
            self.held += 1
            if not attempt.ticket.let_in_at:
                self.asked -= 1

    def let_go(self, attempt: Attempt) -> None:
        """Note that the gatekeeper has a job no more."""
        assert attempt.ticket is not None
        if attempt.ticket.is_held:
            attempt.ticket.is_held = False
            self.held -= 1
        else:
            self.asked -= 1

    def pop(self, most: int, now: float) -> list[Attempt]:
        """Take the next jobs to start: of the highest priority, the first claimed."""
        batch: list[Attempt] = []
        buffer, aside = self._buffer, self._aside
        while len(batch) < most and (buffer or aside):
            priority = None
            if buffer:
                priority = max(buffer) if len(buffer) > 1 else next(iter(buffer))
            is_aside_due = bool(aside) and now >= self._aside_until
            if is_aside_due and (priority is None or aside[0].job.priority >= priority):
                batch.append(aside.popleft())
                continue
            if priority is None:
                break
            jobs = buffer[priority]
            batch.append(jobs.popleft())
            if not jobs:
                del buffer[priority]
        self.waiting -= len(batch)
        return batch

    def put_aside(self, attempts: list[Attempt], until: float) -> None:
        """Take back jobs that a gate held back; they are not popped again before `until`."""
        self.waiting += len(attempts)
        self._aside.extendleft(reversed(attempts))
        self._aside_until = until

    def release(self) -> None:
        """Let the jobs that wait aside be popped at once."""
        self._aside_until = 0.0

    @property
    def unfinished(self) -> int:
        """The jobs whose outcomes are not known."""
        return self.running + self.waiting + self.asked + self.held

    def take_stale(self, claimed_before: float) -> list[Attempt]:
        """Take the jobs that were claimed before a time, or let in by the gatekeeper, and still
        wait."""
        waiting = [one for jobs in (*self._buffer.values(), self._aside) for one in jobs]
        stale = [attempt for attempt in waiting if attempt.buffered_at < claimed_before]
        if stale:
            self._buffer.clear()
            self._aside.clear()
            self.release()  # what the gate said was of a job that may have gone
            self.waiting = 0
            # They were claimed too far ahead.
            self.target, self.low = self.slots, self.slots // 2
            for attempt in waiting:
                if attempt.buffered_at >= claimed_before:
                    self.push(attempt)
        return stale
