"""Packs: attempts that share a slot, because one call of their handler takes them together. A pack
is one unit in the buffer, and attempts join it there. In its slot it waits until its runner has all
attempts, and then belongs to the runner until the last attempt has left."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from rota.declare.declaration import Declaration
from rota.worker.attempt import Attempt
from rota.worker.slots import Unit

_make_key = attrgetter("job_type", "job.queue", "job.group_key", "job.priority", "is_suspect")

EXPIRY_MARGIN_S = 0.25
"""Seconds before its expiry or latest start from which a job waits for no more others."""


class Pack:
    """Attempts of one type, lane and priority. Times are monotonic seconds."""

    __slots__ = (
        *("attempts", "buffered_at", "calls", "current", "go_on", "handed", "job", "room"),
        *("seated", "uncalled"),
    )

    def __init__(self, first: Attempt) -> None:
        """Make an empty pack that `first` will open."""
        chunk = first.job_type.chunk
        assert chunk is not None
        self.job = first.job
        self.attempts: list[Attempt] = []
        self.room = chunk.jobs_max
        """How many more attempts may join."""
        self.buffered_at = first.buffered_at
        """Since when it waits for a slot, no longer for more jobs. A suspect waits for no job."""
        if chunk.wait_s and not first.is_suspect:
            # The leases of waiting attempts run on.
            self.buffered_at += min(chunk.wait_s, first.lease_s / 2)
        self.seated: set[Attempt] = set()
        """Attempts that have not left their slot."""
        # Written by the runner
        self.handed: set[Attempt] = set()
        """Attempts that wait for others to be called with them."""
        self.calls: deque[Any] = deque()
        self.current: Any = None
        self.uncalled: set[Attempt] = set()
        """Attempts in the slot that were called with others, failed, and wait for a new call."""
        self.go_on: Callable[[Pack], None] | None = None
        """Calls the handler if no attempt is still to come."""

    def join(self, attempts: Sequence[Attempt], now: float) -> None:
        """Put attempts into the pack, which waits for more until the first of them must begin."""
        self.attempts += attempts
        self.room -= len(attempts)
        for attempt in attempts:
            attempt.pack = self
        if self.buffered_at > now:
            ends = [
                min(attempt.begin_by, attempt.expires_at) - EXPIRY_MARGIN_S for attempt in attempts
            ]
            self.buffered_at = max(now, min([self.buffered_at, *ends])) if self.room else now


class Packer:
    """Puts attempts into packs: the open pack of each type, queue, lane and priority."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Pack] = {}

    def gather(self, attempts: Sequence[Attempt], now: float) -> tuple[list[Unit], list[Pack]]:
        """Return units that wait for a slot now, and packs that begin to wait for more jobs."""
        alone: list[Unit] = []
        made: list[Pack] = []
        alike: dict[Hashable, list[Attempt]] = {}
        for attempt in attempts:
            if _is_called_alone(attempt):
                alone.append(attempt)
            else:
                alike.setdefault(_make_key(attempt), []).append(attempt)
        for key, some in alike.items():
            count = 0
            while count < len(some):
                pack = self._open.get(key)
                if pack is None or not pack.room:
                    pack = self._open[key] = Pack(some[count])
                    made.append(pack)
                joins = some[count : count + pack.room]
                pack.join(joins, now)
                count += len(joins)
        early = [pack for pack in made if pack.buffered_at > now]
        return alone + [pack for pack in made if pack.buffered_at <= now], early

    def unpack(self, units: Sequence[Unit]) -> list[Attempt]:
        """Return the attempts of units that leave the buffer. No other attempt joins them then."""
        attempts: list[Attempt] = []
        for unit in units:
            attempts += list_attempts(unit)
            if isinstance(unit, Pack):
                unit.seated.update(unit.attempts)
                key = _make_key(unit.attempts[0])
                if self._open.get(key) is unit:
                    del self._open[key]
        return attempts

    def leave(self, attempts: Iterable[Attempt]) -> list[Unit]:
        """Note that attempts no longer need their slots; return units that leave a slot empty."""
        units = []
        for attempt in attempts:
            unit = find_unit(attempt)
            attempt.pack = None
            if isinstance(unit, Pack):
                unit.seated.discard(attempt)
                unit.uncalled.discard(attempt)
                if unit.seated:
                    if unit.go_on is not None:
                        unit.go_on(unit)
                    continue
            units.append(unit)
        return units


def count_slots(attempts: Sequence[Attempt]) -> float:
    """Return how many slots the attempts need, if each slot is as full as it can be."""
    counts = Counter(
        [(attempt.job_type, attempt.job.group_key is not None) for attempt in attempts]
    )
    return sum(
        count / _count_places(job_type, has_lane=has_lane)
        for (job_type, has_lane), count in counts.items()
    )


def list_units(attempts: Sequence[Attempt]) -> list[Unit]:
    """Return the units in the slots of these attempts: attempts or packs."""
    return list(dict.fromkeys(map(find_unit, attempts)))


def find_unit(attempt: Attempt) -> Unit:
    return attempt if attempt.pack is None else attempt.pack  # type: ignore[return-value]


def list_attempts(unit: Unit) -> Sequence[Attempt]:
    return unit.attempts if isinstance(unit, Pack) else [unit]  # type: ignore[list-item]


def _is_called_alone(attempt: Attempt) -> bool:
    """Whether a call takes this job alone. So it is for the last of several attempts: no job dies
    of another's error. How many suspects are called together is said by their turn."""
    if attempt.job_type.chunk is None:
        return True
    return attempt.max_attempts > 1 and attempt.job.attempts >= attempt.max_attempts


def _count_places(job_type: Declaration, *, has_lane: bool) -> int:
    if job_type.chunk is None:
        return 1
    if not has_lane:
        return job_type.chunk.jobs_max
    return min(job_type.chunk.jobs_max, job_type.options.group_capacity)
