"""The gate of rate limits: each attempt of a type that has one reserves its start.

A reservation is a slot of the limit in the near future. The attempt waits for it without a slot of
the worker. It may begin a little later, no more: otherwise it reserves anew.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable, UsageError
from rota.model.outcome import PutBack, RateLimited
from rota.runtime.throttle import Throttle
from rota.store import ops
from rota.store.ops import LimitPlace, NoSlot, Reservation, StartRequest
from rota.worker.gates import (
    ALL_MAY_BEGIN,
    LOG_S,
    REFUSED_S,
    Answers,
    Wait,
    fail_key,
    refuse_all,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rota.model.outcome import End
    from rota.runtime.clock import Clock
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.gates.ticket import Ticket

logger = logging.getLogger("rota")

HELD_MAX = 1_000
"""Most attempts that wait for their slots in one worker; further ones are put back."""
IN_SLOT_S = 1.0
"""How long an attempt may wait in a slot of the worker for another slot of its limit: it came too
late for its first one, because all slots of the worker were taken."""
LOCKED_S = 0.05
"""The pause if another transaction has locked the key."""
NEWS_S = 1.0
"""Seconds between checks whether the limits of waiting attempts have changed."""
REFUSALS = {
    "unknown": "there is no such limit in the database: rota sync declares those of your code",
    "cost": "the job costs more than the burst of its limit, which somebody has lowered",
}
DELAY_S_MAX = 365 * 86_400.0
"""A handler is not told to wait for longer."""


class RateLimitGate:
    """The gate. It knows the reservations of this worker that no handler has used."""

    def __init__(self, clock: Clock, link: StoreLink) -> None:
        self._clock = clock
        self._link = link
        self._held: dict[LimitPlace, set[Attempt]] = {}
        """The attempts with a reservation that have not begun, by key."""
        self._unused: list[tuple[LimitPlace, Reservation]] = []
        """Reservations to return."""
        self._delays: dict[LimitPlace, float] = {}
        """The keys whose handlers were told to wait, and for how long: to be written."""
        self._news_at = 0.0
        self._took_s = 0.0
        """How long the last reservation took."""
        self._throttle = Throttle(clock, LOG_S)

    def prepare(self, attempt: Attempt, arguments: Mapping[str, Any]) -> End | None:
        """Read the key and the cost of a job from its arguments."""
        limit, ticket = attempt.job_type.limit, _ticket(attempt)
        if limit is None:
            return None
        try:
            key, cost = limit.read(arguments)
        except UsageError as error:
            return fail_key(error)
        ticket.limit = (limit.limit.name, key), cost
        ticket.waits_for = f"limit {limit.limit.name}{' ' if key else ''}{key}"
        return None

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Reserve starts for those that have none; let those pass whose slot has come."""
        now = self._clock.monotonic()
        asking: list[Attempt] = []
        answers: dict[Attempt, Wait | End] = {}
        for attempt in batch:
            ticket = _ticket(attempt)
            if ticket.limit is None:
                continue
            if ticket.reservation is not None and now <= ticket.begin_by:
                if now < ticket.slot_at:
                    answers[attempt] = Wait(ticket.slot_at)
                continue
            self._release(attempt)
            asking.append(attempt)
        if asking:
            room = HELD_MAX - sum(map(len, self._held.values()))
            asking.sort(key=lambda attempt: -attempt.job.priority)
            most = [None if place < room else 0.0 for place in range(len(asking))]
            answers |= await self._reserve(asking, most)
            answers |= self._sort_slots({_place(attempt) for attempt in asking})
        return answers or ALL_MAY_BEGIN

    def look(self, attempt: Attempt, now: float) -> Wait | None:
        """Return whether the slot of an attempt that is about to begin still holds."""
        ticket = _ticket(attempt)
        if ticket.limit is None:
            return None
        if ticket.reservation is None:  # it was recalled while it waited for a slot of the worker
            return Wait(is_kept=True)
        if now > ticket.begin_by:
            return Wait(in_slot=True)
        self._let_go(attempt)
        return None

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Reserve anew for attempts that came too late, if a slot is near."""
        now = self._clock.monotonic()
        late = [attempt for attempt in batch if self._must_ask(attempt, now)]
        if not late:
            waits = {one: _ticket(one).slot_at for one in batch if _ticket(one).slot_at > now}
            return {attempt: Wait(at) for attempt, at in waits.items()}
        for attempt in late:
            self._release(attempt)
        return await self._reserve(late, [IN_SLOT_S] * len(late), least_s=min(0.5, self._took_s))

    def note_end(self, attempt: Attempt) -> bool:
        """Keep what an attempt that never began had reserved; note that a handler was told to
        wait."""
        ticket = _ticket(attempt)
        if ticket.limit is None:
            return False
        place, _ = ticket.limit
        if attempt.began_at is not None:
            self._forget(attempt)
        else:
            self._release(attempt)
        if isinstance(attempt.outcome, RateLimited):
            attempt.outcome._waits_for = ticket.waits_for
            self._delays[place] = max(self._delays.get(place, 0.0), attempt.outcome.retry_after_s)
            self._recall(place)
        return False

    async def keep(self) -> float | None:
        """Read whether limits have changed, return what was not used, and write the delays."""
        pause_s = await self._read_news()
        # Before others ask again: then what this worker held lies last. And before a delay, which
        # makes reservations unreturnable.
        if self._unused:
            unused = list(self._unused)
            await self._link.run(ops.return_starts(unused))
            del self._unused[: len(unused)]
        await self._write_delays()
        return pause_s

    async def flush(self, for_s: float) -> None:
        """It keeps no attempts that have ended."""

    async def _read_news(self) -> float | None:
        """Recall attempts whose limits have changed; return the seconds until the next look."""
        if not self._held:
            return None
        now = self._clock.monotonic()
        if now >= self._news_at:
            stamps = await self._link.run(ops.read_stamps(list(self._held)))
            for place, stamp in stamps.items():
                if any(_stamp(attempt) != stamp for attempt in self._held.get(place, ())):
                    self._recall(place)
            self._news_at = now + NEWS_S
        return max(0.0, self._news_at - now)

    async def _write_delays(self) -> None:
        for place, for_s in list(self._delays.items()):
            try:
                await self._link.run(ops.delay_limit(place, min(for_s, DELAY_S_MAX)))
            except DatabaseUnavailable as error:
                if not error.refused:
                    raise
                logger.warning("limit %s was not delayed: %s", " ".join(place).strip(), error)
            if self._delays.get(place) == for_s:
                del self._delays[place]

    def _must_ask(self, attempt: Attempt, now: float) -> bool:
        ticket = _ticket(attempt)
        return ticket.limit is not None and (ticket.reservation is None or now > ticket.begin_by)

    async def _reserve(
        self, batch: Sequence[Attempt], most_s: Sequence[float | None], *, least_s: float = 0.0
    ) -> Answers:
        requests = [
            StartRequest(attempt.job.id, *_limit(attempt), attempt.job.priority, longest_s, least_s)
            for attempt, longest_s in zip(batch, most_s, strict=True)
        ]
        before = self._clock.monotonic()
        try:
            found = await self._link.run(ops.reserve_starts(requests))
        except DatabaseUnavailable as error:
            return refuse_all({one: _ticket(one).waits_for for one in batch}, error, self._throttle)
        now = self._clock.monotonic()
        self._took_s = now - before
        answers: dict[Attempt, Wait | End] = {}
        for attempt in batch:
            answer = found[attempt.job.id]
            if isinstance(answer, NoSlot):
                answers[attempt] = self._refuse(attempt, answer, now)
                continue
            ticket = _ticket(attempt)
            if attempt.is_over:  # the worker goes down, and has ended it meanwhile
                self._unused.append((_place(attempt), answer))
                continue
            ticket.reservation = answer
            # The slot counts from the time of the statement, which lies between the two.
            ticket.slot_at = now + answer.wait_s
            ticket.begin_by = before + answer.wait_s + answer.late_s
            self._held.setdefault(_place(attempt), set()).add(attempt)
            if answer.wait_s > 0:
                answers[attempt] = Wait(ticket.slot_at)
        return answers

    def _refuse(self, attempt: Attempt, answer: NoSlot, now: float) -> Wait | End:
        waits_for = _ticket(attempt).waits_for
        if answer.refusal == "locked":
            return Wait(now + LOCKED_S)
        if answer.back_s is not None:
            return PutBack(waits_for, f"{waits_for}: its turn has not come", answer.back_s)
        assert answer.refusal is not None
        why = f"{waits_for}: {REFUSALS[answer.refusal]}"
        if self._throttle.allows(why):
            job = attempt.job
            logger.warning("job %s %s does not start: %s", job.id, job.job_type, why)
        return PutBack(waits_for, why, REFUSED_S)

    def _sort_slots(self, places: set[LimitPlace]) -> Answers:
        """Give the earliest slots to the highest priorities, among attempts of one key and cost
        that still wait: an urgent job does not wait behind what this worker holds."""
        now = self._clock.monotonic()
        answers: dict[Attempt, Wait | End] = {}
        for place in places:
            waiting = [one for one in self._held.get(place, ()) if _ticket(one).slot_at > now]
            for cost in {_limit(attempt)[1] for attempt in waiting}:
                alike = [attempt for attempt in waiting if _limit(attempt)[1] == cost]
                alike.sort(key=lambda attempt: _ticket(attempt).slot_at)
                slots = [
                    (one.reservation, one.slot_at, one.begin_by) for one in map(_ticket, alike)
                ]
                alike.sort(key=lambda attempt: -max(0, attempt.job.priority))
                for attempt, slot in zip(alike, slots, strict=True):
                    ticket = _ticket(attempt)
                    ticket.reservation, ticket.slot_at, ticket.begin_by = slot
                    answers[attempt] = Wait(ticket.slot_at)
        return answers

    def _recall(self, place: LimitPlace) -> None:
        """Let the attempts that wait for slots of a key ask again."""
        for attempt in list(self._held.get(place, ())):
            self._release(attempt)
            _ticket(attempt).asks_again = True

    def _release(self, attempt: Attempt) -> None:
        """Give up a reservation that was not used."""
        reservation = _ticket(attempt).reservation
        if reservation is not None:
            self._unused.append((_place(attempt), reservation))
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        ticket = _ticket(attempt)
        ticket.reservation = None
        ticket.begin_by = inf
        self._let_go(attempt)

    def _let_go(self, attempt: Attempt) -> None:
        held = self._held.get(_place(attempt))
        if held is not None:
            held.discard(attempt)
            if not held:
                del self._held[_place(attempt)]


def _ticket(attempt: Attempt) -> Ticket:
    assert attempt.ticket is not None
    return attempt.ticket


def _limit(attempt: Attempt) -> tuple[LimitPlace, int]:
    limit = _ticket(attempt).limit
    assert limit is not None
    return limit


def _place(attempt: Attempt) -> LimitPlace:
    return _limit(attempt)[0]


def _stamp(attempt: Attempt) -> str | None:
    reservation = _ticket(attempt).reservation
    return None if reservation is None else reservation.stamp
