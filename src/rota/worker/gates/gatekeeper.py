"""Asks the gates whose answers are in the database: rate limits and breakers.

Only attempts whose types have one come here, after the claim and instead of the buffer. Each gate
is asked once for a whole batch. Who must wait does so without a slot, and in any order: no other
job waits for it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from rota.errors import DatabaseUnavailable
from rota.model.outcome import HandedBack
from rota.runtime.service import Service
from rota.worker.gates import ALL_MAY_BEGIN, Answers, Wait
from rota.worker.gates.ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from rota.model.outcome import End
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.parts import Parts

ASK_MAX = 1_000
"""Most attempts that the gates are asked for at once."""
KEEP_AGAIN_S = 1.0
"""Seconds until a gate writes and reads again what the database has refused."""
GOING_DOWN = "the worker is going down"


class AskedGate(Protocol):
    """A gate whose answers are in the database. All methods are called on the worker's loop.

    Each attempt that it is asked for has a ticket, and was prepared.
    """

    def prepare(self, attempt: Attempt, arguments: Mapping[str, Any]) -> End | None:
        """Read from the handler's arguments what the gate needs, once; return the outcome of an
        attempt whose arguments do not allow that."""

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Return which of a batch may not begin now: when to ask again, or the outcome.

        Raises DatabaseUnavailable; then it is asked again for all of them.
        """

    def look(self, attempt: Attempt, now: float) -> Wait | End | None:
        """Return why an attempt that is about to begin may not, as far as this worker knows: it
        waits in its slot (`Wait(in_slot=True)`, then `ask_in_slot`) or without one
        (`Wait(is_kept=True)`, then `ask`), or has ended."""

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """The last question for attempts that have a slot. Answers and errors as of `ask`."""

    def note_end(self, attempt: Attempt) -> bool:
        """Note that the outcome of an attempt is known, whether it began or not; return whether the
        gate itself gives it to the finisher, once it has kept what the outcome says."""

    async def keep(self) -> float | None:
        """Write and read what the gate keeps beside its answers; return in how many seconds it
        wants to do so again, None: when the gatekeeper is woken.

        Raises DatabaseUnavailable.
        """

    async def flush(self, for_s: float) -> None:
        """Give the finisher the attempts that the gate has not given it yet. The worker goes
        down."""


class Gatekeeper(Service):
    """Holds attempts until the gates let them into the buffer, or end them."""

    name = "gatekeeper"

    def __init__(self, parts: Parts, link: StoreLink, gates: Sequence[AskedGate]) -> None:
        """Make one; `gates` stand in the order in which an attempt passes them. In its slot it
        passes them the other way round: what is taken last is given back least."""
        super().__init__(parts.bus, parts.clock)
        self._parts = parts
        self._link = link
        self._gates = tuple(gates)
        self._held: dict[Attempt, float] = {}
        """The attempts without a slot, each with the time at which the gates are asked (again)."""
        self._in_slot: dict[Attempt, float] = {}
        """The same for attempts that have a slot."""

    def add(self, attempt: Attempt) -> None:
        """Take a claimed attempt. Its lease is renewed from now on."""
        if attempt.ticket is None:
            attempt.ticket = Ticket()
        attempt.keeps_lease = True
        self._held[attempt] = 0.0
        self.wake()

    def hold_back(self, batch: Sequence[Attempt], now: float) -> Answers:
        """Ask for attempts that are about to begin. It keeps those that must wait."""
        answers: dict[Attempt, Wait | End] = {}
        for attempt in batch:
            if attempt.ticket is not None:
                answer = self._look(attempt, now)
                if answer is not None:
                    answers[attempt] = answer
        if not answers:
            return ALL_MAY_BEGIN
        for attempt, answer in answers.items():
            if isinstance(answer, Wait):
                held = self._in_slot if answer.in_slot else self._held
                held[attempt] = answer.until
        self.wake()
        return answers

    def hold_in_slot(self, attempt: Attempt, now: float) -> Wait | End | None:
        """Ask for an attempt that has a slot already; None: it may begin. If it must wait, that is
        in its slot."""
        answer = self._look(attempt, now)
        if isinstance(answer, Wait):
            self._in_slot[attempt] = answer.until
            self.wake()
        return answer

    def note_end(self, attempt: Attempt) -> bool:
        """Note that the outcome of an attempt with a ticket is known; return whether a gate gives
        it to the finisher later."""
        is_kept = [gate.note_end(attempt) for gate in self._gates]
        self.wake()
        return any(is_kept)

    async def flush(self, for_s: float) -> None:
        """Give the finisher all attempts that have ended."""
        self.wake_now()
        for gate in self._gates:
            await gate.flush(for_s)

    def ask_again(self, attempt: Attempt) -> None:
        """Ask at once for an attempt with a ticket, if it waits: it was cancelled."""
        if attempt.ticket is not None:
            attempt.ticket.asks_again = True
        self.wake()

    def take_all(self) -> list[Attempt]:
        """Take away the attempts that wait without a slot: the worker goes down."""
        held = list(self._held)
        self._held.clear()
        return held

    async def tick(self) -> float | None:
        """Ask the gates for all attempts whose time has come."""
        pauses = [await self._keep(gate) for gate in self._gates]
        if await self._ask_in_slot() or await self._ask():
            return 0  # what the gates keep may be more now
        now = self.clock.monotonic()
        pauses += [max(0.0, at - now) for at in (*self._held.values(), *self._in_slot.values())]
        return min((pause_s for pause_s in pauses if pause_s is not None), default=None)

    async def _keep(self, gate: AskedGate) -> float | None:
        try:
            return await gate.keep()
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            self.report_lost(str(error), KEEP_AGAIN_S)
            return KEEP_AGAIN_S  # others are asked for meanwhile

    async def close(self) -> None:
        """Write what the gates still keep, and close the connection."""
        try:
            for gate in self._gates:
                await gate.keep()
        except DatabaseUnavailable:
            pass  # what was reserved here and not used is lost
        finally:
            await self._link.close()

    def _look(self, attempt: Attempt, now: float) -> Wait | End | None:
        answers = (gate.look(attempt, now) for gate in self._gates)
        return next((answer for answer in answers if answer is not None), None)

    # Without a slot

    async def _ask(self) -> bool:
        """Ask for the attempts whose time has come; return whether there were any."""
        due = _take_due(self._held, self.clock.monotonic())
        batch = self._prepare(due)
        for gate in self._gates:
            if not batch:
                break
            try:
                answers = await gate.ask(batch)
            except DatabaseUnavailable:
                self._held.update((one, 0.0) for one in batch if one in self._held)
                raise
            batch = [attempt for attempt in batch if attempt not in answers]
            self._take_in(answers)
        self._let_in(batch)
        return bool(due)

    def _prepare(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """End those that cannot begin any more; read the arguments of the new ones."""
        now = self.clock.monotonic()
        able = []
        for attempt in batch:
            end = attempt.find_obstacle(now) if not attempt.is_lost else HandedBack("it was lost")
            end = end or self._read_arguments(attempt)
            if end is None:
                able.append(attempt)
            else:
                del self._held[attempt]
                self._parts.executor.end_held(attempt, end)
        return able

    def _read_arguments(self, attempt: Attempt) -> End | None:
        assert attempt.ticket is not None
        if attempt.ticket.is_prepared:
            return None
        attempt.ticket.is_prepared = True
        read = attempt.read_payload()
        if not isinstance(read, tuple):
            return read
        ends = (gate.prepare(attempt, read[0]) for gate in self._gates)
        return next((end for end in ends if end is not None), None)

    def _take_in(self, answers: Answers) -> None:
        for attempt, answer in answers.items():
            if attempt not in self._held:
                continue  # the worker goes down, and has ended it
            if isinstance(answer, Wait):
                self._held[attempt] = answer.until
                self._parts.executor.note_held(attempt)
            else:
                del self._held[attempt]
                self._parts.executor.end_held(attempt, answer)

    def _let_in(self, batch: Iterable[Attempt]) -> None:
        passed = [attempt for attempt in batch if self._held.pop(attempt, None) is not None]
        if passed:
            self._parts.executor.let_in(passed)

    # In a slot

    async def _ask_in_slot(self) -> bool:
        """The same for attempts that have a slot."""
        due = _take_due(self._in_slot, self.clock.monotonic())
        batch = [attempt for attempt in due if not attempt.is_over]
        for attempt in due:
            if attempt.is_over:  # the worker is going down, or the job was lost while it waited
                del self._in_slot[attempt]
                self._parts.executor.drop(attempt)
        for gate in reversed(self._gates):
            if not batch:
                break
            try:
                answers = await gate.ask_in_slot(batch)
            except DatabaseUnavailable:
                self._in_slot.update((one, 0.0) for one in batch)
                raise
            batch = [attempt for attempt in batch if attempt not in answers]
            for attempt, answer in answers.items():
                if isinstance(answer, Wait):
                    self._in_slot[attempt] = answer.until
                else:
                    del self._in_slot[attempt]
                    self._parts.executor.handle_end(attempt, answer)
        for attempt in batch:
            del self._in_slot[attempt]
            self._parts.executor.resume(attempt)
        return bool(due)


def _take_due(held: dict[Attempt, float], now: float) -> list[Attempt]:
    """Return the attempts whose time has come, and mark them as asked."""
    due = [
        attempt
        for attempt, at in held.items()
        if at <= now or (attempt.ticket is not None and attempt.ticket.asks_again)
    ][:ASK_MAX]
    for attempt in due:
        held[attempt] = inf
        if attempt.ticket is not None:
            attempt.ticket.asks_again = False
    return due
