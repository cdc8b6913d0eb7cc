"""Gathers claimed jobs of types that take many in one call. Only lists: the executor starts
calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.worker.call import Call

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rota.worker.attempt import Attempt
    from rota.worker.slots import SlotGroup


class Gatherer:
    """The calls that still take jobs: one for each type, lane, priority and group of slots."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Call] = {}
        self._waiting: dict[Call, tuple[SlotGroup, float]] = {}
        """Those that wait for more jobs, with the time until which they do."""

    @property
    def is_empty(self) -> bool:
        """Whether no call waits for more jobs."""
        return not self._waiting

    def add(self, group: SlotGroup, attempts: list[Attempt]) -> list[Call]:
        """Put attempts of one type, lane and priority into calls. Return the calls that are to go
        into the buffer now: they do not wait for more jobs, or have waited and are full."""
        first = attempts[0]
        chunk = first.job_type.chunk
        assert chunk is not None
        key = _make_key(group, first)
        ready: list[Call] = []
        call = self._open.get(key)
        at = 0
        if call is not None and call.takes_more:
            at = call.join(attempts)
            if not call.takes_more and call in self._waiting:
                ready.append(self._release(call))
        while at < len(attempts):
            call = self._open[key] = Call(attempts[at : at + chunk.jobs_max])
            if chunk.wait_s and call.takes_more:
                self._waiting[call] = group, call.buffered_at + chunk.wait_s
                group.note_gathered(call, 1)
            else:
                ready.append(call)
            at += chunk.jobs_max
        return ready

    def take_due(self, now: float) -> list[tuple[SlotGroup, Call]]:
        """Return the calls that have waited long enough, with their groups of slots."""
        due = [(group, call) for call, (group, until) in self._waiting.items() if until <= now]
        return [(group, self._release(call)) for group, call in due]

    def find_pause_s(self, now: float) -> float | None:
        """Return in how many seconds the next call has waited long enough; None: none waits."""
        if not self._waiting:
            return None
        return max(0.0, min(until for _, until in self._waiting.values()) - now)

    def take_all(self) -> list[Call]:
        """Take away the calls that wait: the worker goes down."""
        return [self._release(call) for call in list(self._waiting)]

    def close(self, group: SlotGroup, call: Call) -> None:
        """Note that a call leaves the buffer: it takes no more jobs."""
        key = _make_key(group, call)
        if self._open.get(key) is call:
            del self._open[key]

    def _release(self, call: Call) -> Call:
        group, _ = self._waiting.pop(call)
        group.note_gathered(call, -1)
        return call


def _make_key(group: SlotGroup, attempt: Attempt) -> Hashable:
    job = attempt.job
    return group, attempt.job_type, job.group_key, job.priority
