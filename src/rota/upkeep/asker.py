"""Asks in one statement which parts of maintenance have something to do."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import UpkeepDue
from rota.upkeep.reaper import Reaper
from rota.upkeep.scheduler import Scheduler
from rota.upkeep.server_clock import ServerClock
from rota.upkeep.sweeper import Sweeper

REST_MAX_S = 60.0
"""Longest rest of a worker: then it looks itself, whoever else does."""
SOON_SHARE = 0.7
"""From this share of the time between two questions on, a sweeper joins a question for others."""
LATE_S = 1.5
"""Seconds after its time when a question is asked alone, as no claim has asked it."""


class Question(msgspec.Struct, frozen=True):
    at: float
    """When it is asked, in monotonic seconds."""
    sweepers: Sequence[Sweeper]
    text: str
    """The question as the database takes it."""


class Asker(Service):
    """Wakes the sweepers that have something to do.

    A claim that looks for jobs asks for the sweepers as well. The asker asks only while no claim
    does: all slots are full, say. While another idle worker asks, the asker rests.
    """

    name = "upkeep"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        clock: Clock,
        reaper: Reaper,
        scheduler: Scheduler,
        sweepers: Sequence[Sweeper],
    ) -> None:
        super().__init__(bus, clock)
        self.reaper = reaper
        self._scheduler = scheduler
        self._sweepers = sweepers
        self._link = link
        self._server_clock = ServerClock()
        self._asked_at = clock.monotonic()
        self.due_at = self._asked_at
        """When to ask next, in monotonic seconds. The first answer says what time it is: without it
        a worker would not see that the clock is set."""

    @property
    def is_well(self) -> bool:
        """Whether no sweeper is due, and the reaper takes all: others may rely on this asker."""
        return self.reaper.is_steady and not any(sweeper.is_due for sweeper in self._sweepers)

    async def tick(self) -> float | None:
        now = self.clock.monotonic()
        if now < self.due_at + LATE_S:
            return self.due_at + LATE_S - now
        question = self.make_question(now)
        self.take(question, await self._link.run(ops.find_upkeep_due(question.text)))
        return LATE_S

    def handle_outage(self, error: DatabaseUnavailable, back_off_s: float) -> float | None:
        self.reaper.note_outage(error)
        return super().handle_outage(error, back_off_s)

    def find_question(self, now: float, *, for_others: bool) -> Question | None:
        """Return the question to ask now; None: nothing. A worker that looks `for_others` asks even
        while it could rest: else two could look for each other, and nobody would ask."""
        question = self.make_question(now)
        return question if now >= self.due_at or (for_others and question.sweepers) else None

    def make_question(self, now: float) -> Question:
        """Return the question that is due from `due_at` on, for the sweepers that are due soon."""
        sweepers = [
            sweeper
            for sweeper in self._sweepers
            if now >= sweeper.asked_at + sweeper.asked_every_s * SOON_SHARE
        ]
        since = {sweeper.name: sweeper.reading.begin() for sweeper in sweepers}
        return Question(now, sweepers, msgspec.json.encode(since).decode())

    def take(self, question: Question, answer: UpkeepDue | None) -> None:
        """Take the answer; None: a table is locked, so the question is asked again."""
        self.reaper.note_back()
        now = self.clock.monotonic()
        if answer is None:
            self.due_at = now + LATE_S
            return
        for sweeper in question.sweepers:
            sweeper.asked_at = now
            sweeper.is_at_rest = False
            if sweeper.name in answer.due:
                sweeper.is_due = True
                sweeper.wake()
            else:
                sweeper.reading.end(answer.now, now - question.at)
        step_s = self._server_clock.note(answer.time, answer.moved_s, question.at, now)
        if step_s is not None:
            self.reaper.note_step(step_s, answer.moved_s)
            for sweeper in self._sweepers:
                sweeper.reading.everything_at = 0.0  # what it has read is of another time
        self._asked_at = now
        self.due_at = self._find_due_at()
        if answer.tick_in_s is not None:
            self._scheduler.wake_in(answer.tick_in_s)
        if answer.reap_in_s is not None:
            self.reaper.wake_in(answer.reap_in_s)

    def rest(self, for_s: float) -> None:
        rests_until = min(self.clock.monotonic() + for_s, self._asked_at + REST_MAX_S)
        self.due_at = max(self.due_at, rests_until)
        for sweeper in self._sweepers:
            sweeper.is_at_rest = True

    def _find_due_at(self) -> float:
        return min(sweeper.asked_at + sweeper.asked_every_s for sweeper in self._sweepers)
