"""Gathers claimed jobs of types that take many in one call. Only lists: the executor starts
calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.worker.call import Call

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rota.worker.attempt import Attempt
    from rota.worker.slots import SlotGroup


EXPIRY_MARGIN_S = 0.25
"""How long before it expires a job waits for no more others."""


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

    def add(self, group: SlotGroup, attempts: list[Attempt], now: float) -> list[Call]:
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
            if call in self._waiting:
                self._shorten(call, attempts[:at])
                if not call.takes_more:
                    ready.append(self._release(call, now))
        while at < len(attempts):
            call = self._open[key] = Call(attempts[at : at + chunk.jobs_max])
            if chunk.wait_s and call.takes_more:
                wait_s = min(chunk.wait_s, first.lease_s / 2)  # leases of those that wait run on
                self._waiting[call] = group, call.buffered_at + wait_s
                self._shorten(call, call.attempts)
                group.note_gathered(call, 1)
            else:
                ready.append(call)
            at += chunk.jobs_max
        return ready

    def take_due(self, now: float) -> list[tuple[SlotGroup, Call]]:
        """Return the calls that have waited long enough, with their groups of slots."""
        due = [(group, call) for call, (group, until) in self._waiting.items() if until <= now]
        return [(group, self._release(call, now)) for group, call in due]

    def find_pause_s(self, now: float) -> float | None:
        """Return in how many seconds the next call has waited long enough; None: none waits."""
        if not self._waiting:
            return None
        return max(0.0, min(until for _, until in self._waiting.values()) - now)

    def take_all(self, now: float) -> list[Call]:
        """Take away the calls that wait: the worker goes down."""
        return [self._release(call, now) for call in list(self._waiting)]

    def close(self, group: SlotGroup, call: Call) -> None:
        """Note that a call leaves the buffer: it takes no more jobs."""
        key = _make_key(group, call)
        if self._open.get(key) is call:
            del self._open[key]

    def _shorten(self, call: Call, attempts: list[Attempt]) -> None:
        """Let a call wait no longer than until one of these expires."""
        expires_at = [one.expires_at - EXPIRY_MARGIN_S for one in attempts if one.job.expires_at]
        if expires_at:
            group, until = self._waiting[call]
            self._waiting[call] = group, min(until, *expires_at)

    def _release(self, call: Call, now: float) -> Call:
        call.ready_at = now
        group, _ = self._waiting.pop(call)
        group.note_gathered(call, -1)
        return call


def _make_key(group: SlotGroup, attempt: Attempt) -> Hashable:
    job = attempt.job
    return group, attempt.job_type, job.group_key, job.priority
