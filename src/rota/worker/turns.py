"""Attempts that wait without a slot, for the start that their rate limit gave, or as suspects for
their turn. No other job waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf

from rota.model.outcome import End
from rota.worker.attempt import LOST, Attempt
from rota.worker.suspects import Suspects


class Turns:
    def __init__(self, suspects: Suspects) -> None:
        self._suspects = suspects
        self.waiting: dict[Attempt, float] = {}
        """By attempt, when it is looked at next."""
        self._order: list[tuple[float, int, Attempt]] = []
        """A heap of the attempts that wait; an entry whose time is not in `waiting` is void."""
        self._count = count()

    def take(self, attempts: Iterable[Attempt], now: float) -> None:
        for attempt in attempts:  # from now on: the claim was decided before its answer came
            self._wait(attempt, now + attempt.starts_in_s)

    def take_due(self, now: float) -> tuple[list[Attempt], dict[Attempt, End]]:
        """Return attempts that may have a slot now, and the outcomes of attempts that never may."""
        due = []
        while self.find_due_at() <= now:
            due.append(heappop(self._order)[2])
            del self.waiting[due[-1]]
        ends: dict[Attempt, End] = {}
        for attempt in due:
            end = LOST if attempt.is_lost else attempt.find_obstacle(now)
            if end is not None:
                ends[attempt] = end
        suspects = [attempt for attempt in due if attempt.is_suspect and attempt not in ends]
        answers = self._suspects.ask(suspects)
        able = []
        for attempt in due:
            answer = answers.get(attempt)
            if isinstance(answer, float):
                self._wait(attempt, answer)
                continue
            if answer is not None:
                ends[attempt] = answer
            if attempt in ends:
                self._suspects.forget(attempt)
            else:
                able.append(attempt)
        return able, ends

    def find_due_at(self) -> float:
        while self._order and self.waiting.get(self._order[0][2]) != self._order[0][0]:
            heappop(self._order)
        return self._order[0][0] if self._order else inf

    def hasten(self, attempt: Attempt) -> bool:
        """Look at an attempt at once, if it waits; return whether it does."""
        if attempt not in self.waiting:
            return False
        self._wait(attempt, 0.0)
        return True

    def note_written(self, attempt: Attempt) -> None:
        """Let the next suspects begin: a suspect's outcome is written, or never will be."""
        self._suspects.note_written(attempt)
        for suspect in self._suspects.waiting:
            self.hasten(suspect)

    def take_all(self) -> list[Attempt]:
        waiting = list(self.waiting)
        self.waiting.clear()
        self._order.clear()
        return waiting

    def _wait(self, attempt: Attempt, until: float) -> None:
        self.waiting[attempt] = until
        heappush(self._order, (until, next(self._count), attempt))
