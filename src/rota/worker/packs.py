"""Packs: attempts that share a slot, because one call of their handler takes them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import Any

from rota.declare.declaration import Declaration
from rota.worker.attempt import Attempt, Calls
from rota.worker.slots import Unit

_make_key = attrgetter("job_type", "job.queue", "job.group_key", "job.priority", "is_suspect")
_pack = attrgetter("pack")

EXPIRY_MARGIN_S = 0.25
"""How long before it expires, or comes too late for its start, a job waits for no more others."""


class Pack:
    """Attempts of one type, lane and priority."""

    __slots__ = (
        *("able", "attempts", "current", "is_open", "job", "jobs_max"),
        *("ready_at", "seated", "waiting"),
    )

    def __init__(self, attempts: list[Attempt]) -> None:
        chunk = attempts[0].job_type.chunk
        assert chunk is not None
        self.jobs_max = chunk.jobs_max
        self.job = attempts[0].job
        """Its first job."""
        self.attempts = attempts
        """Those that wait in the buffer, in order."""
        self.is_open = True
        """Whether others may join: it waits for a slot."""
        self.ready_at: float | None = None
        """When it began to wait for a slot; None: when its first job was claimed."""
        # Written by the executor
        self.seated: set[Attempt] = set()
        """Those that are in the slot, …"""
        self.waiting: set[Attempt] = set()
        """… of these those that the starter has, …"""
        self.able: set[Attempt] = set()
        """… and those that may begin, and wait for them: one call takes all."""
        self.current: Calls | None = None
        """The call of their handler that runs now. Written by the runner."""
        for attempt in attempts:
            attempt.pack = self

    @property
    def buffered_at(self) -> float:
        """Since when it waits for a free slot."""
        return self.attempts[0].buffered_at if self.ready_at is None else self.ready_at

    @property
    def room(self) -> int:
        """How many more may join."""
        return self.jobs_max - len(self.attempts) if self.is_open else 0

    def take_able(self) -> list[Attempt]:
        """Return those that may begin, in order, once the starter has no other."""
        if self.waiting:
            return []
        able, self.able = self.able, set()
        return [attempt for attempt in self.attempts if attempt in able]

    def join(self, attempts: Sequence[Attempt]) -> int:
        """Add the first of these attempts, as many as there is room for; return how many."""
        fresh = attempts[: self.room]
        self.attempts += fresh
        for attempt in fresh:
            attempt.pack = self
        return len(fresh)


class Packer:
    """Gathers claimed attempts into packs: the open one of each type, queue, lane and priority."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Pack] = {}
        self.waiting: dict[Pack, float] = {}
        """Those that wait for more jobs, with the time until which they do."""

    def pack(self, attempts: Iterable[Attempt], now: float) -> tuple[list[Pack], list[Pack]]:
        """Put attempts into packs. Return those that are to go into the buffer now, and those that
        begin to wait for more jobs."""
        alike: dict[Hashable, list[Attempt]] = {}
        for alike_in, run in groupby(attempts, _make_key):
            alike.setdefault(alike_in, []).extend(run)
        ready: list[Pack] = []
        begun: list[Pack] = []
        for key, some in alike.items():
            joined = self._join(key, some, ready, now)
            self._begin(key, some[joined:], ready, begun)
        return ready, begun

    def _join(self, key: Hashable, attempts: list[Attempt], ready: list[Pack], now: float) -> int:
        """Let attempts join the open pack; return how many did."""
        pack = self._open.get(key)
        if pack is None or not pack.room:
            return 0
        count = pack.join(attempts)
        if pack in self.waiting:
            self._shorten(pack, attempts[:count])
            if not pack.room:
                ready.append(self._release(pack, now))
        return count

    def _begin(
        self, key: Hashable, attempts: list[Attempt], ready: list[Pack], begun: list[Pack]
    ) -> None:
        while attempts:
            chunk = attempts[0].job_type.chunk
            assert chunk is not None
            pack = self._open[key] = Pack(attempts[: chunk.jobs_max])
            attempts = attempts[chunk.jobs_max :]
            first = pack.attempts[0]
            if chunk.wait_s and pack.room and not first.is_suspect:
                # The leases of those that wait run on.
                self.waiting[pack] = pack.buffered_at + min(chunk.wait_s, first.lease_s / 2)
                self._shorten(pack, pack.attempts)
                begun.append(pack)
            else:
                ready.append(pack)

    def take_due(self, now: float) -> list[Pack]:
        due = [pack for pack, until in self.waiting.items() if until <= now]
        return [self._release(pack, now) for pack in due]

    def take(self, is_meant: Callable[[Pack], bool], now: float) -> list[Pack]:
        """Take away those that are meant of the packs that wait."""
        return [self._release(pack, now) for pack in list(self.waiting) if is_meant(pack)]

    def find_due_at(self) -> float:
        """Return when the next pack has waited long enough."""
        return min(self.waiting.values(), default=inf)

    def close(self, pack: Pack) -> None:
        """Note that a pack leaves the buffer: no more jobs join it."""
        pack.is_open = False
        key = _make_key(pack.attempts[0])
        if self._open.get(key) is pack:
            del self._open[key]

    def _shorten(self, pack: Pack, attempts: list[Attempt]) -> None:
        """Let a pack wait no longer than until one of these expires, or may begin no more."""
        ends = [
            min(one.begin_by, one.expires_at if one.job.expires_at else inf) for one in attempts
        ]
        self.waiting[pack] = min([self.waiting[pack], *(at - EXPIRY_MARGIN_S for at in ends)])

    def _release(self, pack: Pack, now: float) -> Pack:
        pack.ready_at = now
        del self.waiting[pack]
        return pack


def find_for_packs(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return those that are called together with others.

    The last attempt of a job that has several is called alone: no job dies of another one's error.
    How many suspects are called together is said by their turn.
    """
    return [
        one
        for one in attempts
        if one.job_type.chunk is not None
        and (
            one.job.attempts < (one.job.max_attempts or one.job_type.rules.max_attempts)
            or one.max_attempts == 1
        )
    ]


def sort_by_pack(attempts: Iterable[Attempt]) -> dict[Pack | None, list[Attempt]]:
    """Return attempts by their packs; None: those that have none."""
    by_pack: dict[Any, list[Attempt]] = {}
    for pack, run in groupby(attempts, _pack):  # those of one pack come one after the other
        by_pack.setdefault(pack, []).extend(run)
    return by_pack


def enter_packs(attempts: Iterable[Attempt]) -> list[Unit]:
    """Note that attempts have a slot; return what has it: they, or their packs."""
    units: list[Unit] = []
    for pack, some in sort_by_pack(attempts).items():
        if pack is None:
            units += some
        else:
            pack.seated.update(some)
            units.append(pack)
    return units


def leave_packs(attempts: Iterable[Attempt]) -> list[Unit]:
    """Note that attempts leave their slots; return what leaves a slot empty."""
    units: list[Unit] = []
    for pack, some in sort_by_pack(attempts).items():
        if pack is None:
            units += some
            continue
        pack.seated.difference_update(some)
        if not pack.seated:
            units.append(pack)
        for attempt in some:
            attempt.pack = None
    return units


def count_slots(attempts: Sequence[Attempt]) -> float:
    """Return how many slots these need, if each is as full as it can be."""
    counts = Counter([(one.job_type, one.job.group_key is not None) for one in attempts])
    return sum(
        count / _count_places(job_type, has_lane=has_lane)
        for (job_type, has_lane), count in counts.items()
    )


def _count_places(job_type: Declaration, *, has_lane: bool) -> int:
    """Return how many jobs of a type one slot can run at once."""
    if job_type.chunk is None:
        return 1
    if not has_lane:
        return job_type.chunk.jobs_max
    return min(job_type.chunk.jobs_max, job_type.options.group_capacity)
