"""Slots that some queues share, and the claimed jobs that wait for one. Only counts and queues: who starts a job is the executor's business."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.worker.held import Held

PREFETCH_MAX = 1_000
"""Jobs claimed ahead of free slots, at most."""
PREFETCH_S = 0.1
"""Jobs are claimed ahead as many as this worker has lately been through in so long: enough to cover a claim's round trip, and no
more, for a job in a buffer is a job that no idle worker can take."""


class Lane:
    """The slots and the buffer of some queues. Within one priority jobs start in the order in which they were claimed."""

    __slots__ = (
        "_buffer",
        "_rated_at",
        "_rated_ended",
        "_suspects",
        "ended",
        "low",
        "queues",
        "running",
        "slots",
        "target",
        "waiting",
    )

    def __init__(self, queues: tuple[str, ...], slots: int) -> None:
        self.queues = queues
        self.slots = slots
        self.running = 0
        self.waiting = 0
        """Jobs in the buffer."""
        self.ended = 0
        self.target = slots
        """How many jobs to hold: one for each slot, and those claimed ahead."""
        self.low = slots // 2
        """Below so many held, claim again."""
        self._buffer: dict[int, deque[Held]] = {}
        self._suspects: deque[Held] = deque()
        """Jobs that were lost before wait for each other, and nobody waits for them."""
        self._rated_at = monotonic()
        self._rated_ended = 0

    @property
    def held(self) -> int:
        """The jobs that run or wait for a slot. Suspects wait for each other, not for a slot: a thousand of them take no other job's place."""
        held = self.running + self.waiting
        return held - min(len(self._suspects), PREFETCH_MAX) if self._suspects else held

    @property
    def wanted(self) -> int:
        """How many jobs to claim now: none while enough are held, so that claims are few and full."""
        held = self.held
        return self.target - held if held <= self.low or held < self.slots else 0

    def measure(self, now: float) -> None:
        """Take in how fast jobs have been going through."""
        took_s = now - self._rated_at
        if took_s < 0.001:
            return
        ahead = min(PREFETCH_MAX, int((self.ended - self._rated_ended) / took_s * PREFETCH_S))
        self.target = self.slots + (ahead + self.target - self.slots) // 2
        self.low = self.target // 2
        self._rated_at, self._rated_ended = now, self.ended

    def push(self, held: Held) -> None:
        """Put a claimed job into the buffer."""
        self.waiting += 1
        if held.is_suspect:
            self._suspects.append(held)
            return
        priority = held.job.priority
        jobs = self._buffer.get(priority)
        if jobs is None:
            jobs = self._buffer[priority] = deque()
        jobs.append(held)

    def pop(self, let_begin: Callable[[Held], bool]) -> Held | None:
        """Take the next job to start: of the highest priority, the first. A suspect only if `let_begin` says so; None when no other waits."""
        if not self._buffer:
            return self._pop_suspect(let_begin)
        priority = max(self._buffer) if len(self._buffer) > 1 else next(iter(self._buffer))
        if self._suspects and self._suspects[0].job.priority >= priority:
            suspect = self._pop_suspect(let_begin)
            if suspect is not None:
                return suspect
        jobs = self._buffer[priority]
        held = jobs.popleft()
        if not jobs:
            del self._buffer[priority]
        self.waiting -= 1
        return held

    def _pop_suspect(self, let_begin: Callable[[Held], bool]) -> Held | None:
        if not self._suspects or not let_begin(self._suspects[0]):
            return None
        self.waiting -= 1
        return self._suspects.popleft()

    def take_stale(self, claimed_before: float) -> list[Held]:
        """Take the jobs that were claimed before a time and still wait."""
        waiting = [held for jobs in (*self._buffer.values(), self._suspects) for held in jobs]
        stale = [held for held in waiting if held.claimed_at < claimed_before]
        if stale:
            self._buffer.clear()
            self._suspects.clear()
            self.waiting = 0
            self.target, self.low = self.slots, self.slots // 2  # they were claimed too far ahead
            for held in waiting:
                if held.claimed_at >= claimed_before:
                    self.push(held)
        return stale
