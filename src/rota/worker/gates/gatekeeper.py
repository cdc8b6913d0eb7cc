"""Parks attempts until their gates let them begin, or end them.

It alone asks the gates, each once for a whole batch, and in the order of their table. Who is parked
without a slot waits in any order: no other job waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol

from rota.errors import DatabaseUnavailable
from rota.model.outcome import End, HandedBack
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.gates import Answers, Gate

ASK_MAX = 1_000
"""Most attempts that the gates are asked for at once."""
LOST = HandedBack("its lease was lost")


class Admits(Protocol):
    """Takes what the gates say: the executor."""

    def note_parked(self, attempt: Attempt) -> None:
        """An attempt that the gatekeeper took must wait: its place is free for another."""

    def let_in(self, attempts: Sequence[Attempt]) -> None:
        """These may have a slot."""

    def end_parked(self, attempt: Attempt, end: End) -> None:
        """An attempt without a slot ends."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """These have a slot, and may begin."""

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """An attempt with a slot ends."""

    def drop(self, attempt: Attempt) -> None:
        """An attempt with a slot is over already."""


class Gatekeeper(Service):
    """Parks attempts, and asks the gates for them."""

    name = "gatekeeper"

    def __init__(
        self, bus: Bus, clock: Clock, link: StoreLink, gates: Sequence[Gate], admits: Admits
    ) -> None:
        """Make one; `gates` stand in the order in which an attempt without a slot passes them. In
        its slot it passes them the other way round."""
        super().__init__(bus, clock)
        self._link = link
        self._gates = tuple(gates)
        self._admits = admits
        self._parked: dict[Attempt, float] = {}
        """The attempts without a slot, each with the time at which the gates are asked (again)."""
        self._in_slot: dict[Attempt, float] = {}
        """The same for attempts that have a slot."""

    def take(self, claimed: Sequence[Attempt]) -> list[Attempt]:
        """Tell the attempts of a claimed batch which gates they pass. Park those that must be asked
        for before they have a slot, and return them."""
        for gate in self._gates:
            for attempt in gate.choose(claimed):
                attempt.gates = (*attempt.gates, gate)
        parked = [one for one in claimed if any(gate.is_first for gate in one.gates)]
        for attempt in parked:
            self._parked[attempt] = 0.0
        if parked:
            self.wake()
        return parked

    def look(self, attempt: Attempt) -> bool:
        """Park an attempt that gets a slot, if gates are to answer for it there; return whether."""
        waits = not all(gate.is_first for gate in attempt.gates)
        if waits:
            self._in_slot[attempt] = 0.0
            self.wake()
        return waits

    def note_end(self, attempt: Attempt) -> None:
        """Note that the outcome of an attempt is known."""
        for gate in self._list_gates(attempt):
            gate.note_end(attempt)
        self.wake()

    def note_written(self, attempt: Attempt) -> None:
        """Note that the outcome of a suspect is written, or never will be."""
        for gate in self._list_gates(attempt):
            gate.note_written(attempt)
        self.wake()

    def ask_again(self, attempt: Attempt) -> None:
        """Ask at once for an attempt, if it is parked: it was cancelled."""
        for parked in (self._parked, self._in_slot):
            if attempt in parked:
                parked[attempt] = 0.0
        self.wake()

    def take_all(self) -> list[Attempt]:
        """Take away the attempts that wait without a slot: the worker goes down."""
        parked = list(self._parked)
        self._parked.clear()
        return parked

    async def tick(self) -> float | None:
        """Ask the gates for all attempts whose time has come."""
        for gate in self._gates:
            for attempt in gate.again:
                self.ask_again(attempt)
            gate.again.clear()
        if await self._ask_in_slot() or await self._ask():
            return 0
        now = self.clock.monotonic()
        at = min((*self._parked.values(), *self._in_slot.values()), default=None)
        return None if at is None else max(0.0, at - now)

    async def close(self) -> None:
        await self._link.close()

    def _list_gates(self, attempt: Attempt) -> list[Gate]:
        return [gate for gate in self._gates if gate in attempt.gates]

    # Without a slot

    async def _ask(self) -> bool:
        """Ask for the attempts whose time has come; return whether there were any."""
        due = _take_due(self._parked, self.clock.monotonic())
        try:
            batch = self._end_unable(due)
            for gate in self._gates:
                if gate.is_first:
                    batch = await self._ask_one(gate, batch)
        except DatabaseUnavailable:
            self._parked.update((one, 0.0) for one in due if self._parked.get(one) == inf)
            raise
        # While it asked, the worker may have gone down and ended them.
        passed = [attempt for attempt in batch if self._parked.pop(attempt, None) is not None]
        if passed:
            self._admits.let_in(passed)
        return bool(due)

    async def _ask_one(self, gate: Gate, batch: list[Attempt]) -> list[Attempt]:
        """Ask a gate for those that pass it; return those of the batch that it does not stop."""
        asked = [attempt for attempt in batch if gate in attempt.gates]
        answers = await gate.ask(asked) if asked else {}
        self._take_in(answers)
        return [attempt for attempt in batch if attempt not in answers]

    def _end_unable(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """End those that cannot begin any more; return the others."""
        now = self.clock.monotonic()
        able = []
        for attempt in batch:
            end = LOST if attempt.is_lost else attempt.find_obstacle(now)
            if end is None:
                able.append(attempt)
            else:
                del self._parked[attempt]
                self._admits.end_parked(attempt, end)
        return able

    def _take_in(self, answers: Answers) -> None:
        for attempt, answer in answers.items():
            if attempt not in self._parked:
                continue  # the worker goes down, and has ended it
            if isinstance(answer, float):
                _wait_until(self._parked, attempt, answer)
                self._admits.note_parked(attempt)
            else:
                del self._parked[attempt]
                self._admits.end_parked(attempt, answer)

    # In a slot

    async def _ask_in_slot(self) -> bool:
        """The same for attempts that have a slot."""
        due = _take_due(self._in_slot, self.clock.monotonic())
        batch = self._drop_over(due)
        for gate in reversed(self._gates):
            asked = [attempt for attempt in batch if gate in attempt.gates]
            if not asked:
                continue
            try:
                answers = await gate.ask_in_slot(asked)
            except DatabaseUnavailable:
                self._in_slot.update((one, 0.0) for one in batch)
                raise
            batch = [attempt for attempt in batch if attempt not in answers]
            for attempt, answer in answers.items():
                if isinstance(answer, float):
                    _wait_until(self._in_slot, attempt, answer)
                else:
                    del self._in_slot[attempt]
                    self._admits.handle_end(attempt, answer)
        batch = self._drop_over(batch)  # the worker went down, or a job was lost meanwhile
        for attempt in batch:
            del self._in_slot[attempt]
        if batch:
            self._admits.begin(batch)
        return bool(due)

    def _drop_over(self, batch: Iterable[Attempt]) -> list[Attempt]:
        able = []
        for attempt in batch:
            if attempt.is_over:
                del self._in_slot[attempt]
                self._admits.drop(attempt)
            else:
                able.append(attempt)
        return able


def _wait_until(parked: dict[Attempt, float], attempt: Attempt, at: float) -> None:
    """Ask for an attempt again at this time; at once if it was cancelled while a gate was asked."""
    parked[attempt] = min(parked.get(attempt, inf), at)


def _take_due(parked: dict[Attempt, float], now: float) -> list[Attempt]:
    """Return the attempts whose time has come, and mark them as asked."""
    due = [attempt for attempt, at in parked.items() if at <= now][:ASK_MAX]
    for attempt in due:
        parked[attempt] = inf
    return due
