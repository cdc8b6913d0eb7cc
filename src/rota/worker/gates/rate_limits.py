"""The gate of rate limits: each attempt of a type that has one reserves its start.

A reservation is a slot of the limit in the near future. The attempt waits for it without a slot of
the worker. It may begin a little later, no more: otherwise it reserves anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from rota.declare.declaration import Declaration
from rota.errors import DatabaseUnavailable
from rota.model.outcome import End, HandedBack, RateLimited
from rota.runtime.clock import Clock
from rota.runtime.throttle import Throttle
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import LimitPlace, NoSlot, Reservation, StartRequest
from rota.worker.attempt import Attempt
from rota.worker.gates import (
    ALL_MAY_BEGIN,
    LOG_S,
    REFUSED_S,
    Answers,
    Gate,
    Park,
    refuse_all,
)

logger = logging.getLogger("rota")

HELD_MAX = 1_000
"""Most attempts that wait for their slots in one worker; further ones are handed back."""
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


@dataclass(slots=True)
class StartPass:
    """What the gate knows of one attempt."""

    place: LimitPlace
    cost: int
    reservation: Reservation | None = None
    """Its start as reserved; None: not yet, or not any more."""
    slot_at: float = 0.0
    """The time of its slot, in monotonic seconds. Until `Attempt.begin_by` it need not ask anew."""


class RateLimitGate(Gate):
    """The gate. It knows the reservations of this worker that no handler has used."""

    is_first = keeps = True

    def __init__(self, clock: Clock, link: StoreLink, types: Collection[Declaration]) -> None:
        self.again = set()
        self._clock = clock
        self._link = link
        self.types = frozenset(one for one in types if one.options.rate_limit is not None)
        self._passes: dict[Attempt, StartPass] = {}
        """What it knows of the attempts that have not ended."""
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

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of a type with a limit, and read what they ask of it."""
        chosen = super().choose(claimed)
        for attempt in chosen:
            limit = attempt.job_type.options.rate_limit
            assert limit is not None
            asks = attempt.job_type.asks
            key = asks.read_key(attempt.job, "limit")
            self._passes[attempt] = StartPass((limit.name, key), asks.read_cost(attempt.job))
            attempt.waits_for = f"limit {limit.name}{' ' if key else ''}{key}"
        return chosen

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Reserve starts for those that have none; let those pass whose slot has come."""
        now = self._clock.monotonic()
        asking: list[Attempt] = []
        answers: dict[Attempt, float | End] = {}
        for attempt in batch:
            one = self._passes.get(attempt)
            if one is None:
                continue
            if one.reservation is not None and now <= attempt.begin_by:
                if now < one.slot_at:
                    answers[attempt] = one.slot_at
                continue
            self._release(attempt, one)
            asking.append(attempt)
        if asking:
            room = HELD_MAX - sum(map(len, self._held.values()))
            asking.sort(key=lambda attempt: -attempt.job.priority)
            most = [None if place < room else 0.0 for place in range(len(asking))]
            places = {self._passes[attempt].place for attempt in asking}
            answers |= await self._reserve(asking, most)
            answers |= self._sort_slots(places)
        return answers or ALL_MAY_BEGIN

    def look(self, attempt: Attempt, now: float) -> Park | None:
        """Return whether the slot of an attempt that is about to begin still holds."""
        one = self._passes.get(attempt)
        if one is None:
            return None
        if one.reservation is None:  # it was recalled while it waited for a slot of the worker
            return Park.WITHOUT_SLOT
        if now > attempt.begin_by:
            return Park.IN_SLOT
        self._let_go(attempt, one)
        return None

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Reserve anew for attempts that came too late, if a slot is near."""
        now = self._clock.monotonic()
        asked = {one: known for one in batch if (known := self._passes.get(one)) is not None}
        late = [
            attempt
            for attempt, one in asked.items()
            if one.reservation is None or now > attempt.begin_by
        ]
        if not late:
            return {one: known.slot_at for one, known in asked.items() if known.slot_at > now}
        for attempt in late:
            self._release(attempt, asked[attempt])
        return await self._reserve(late, [IN_SLOT_S] * len(late), least_s=min(0.5, self._took_s))

    def note_end(self, attempt: Attempt) -> bool:
        """Keep what an attempt that never began had reserved; note that a handler was told to
        wait."""
        one = self._passes.pop(attempt, None)
        if one is None:
            return False
        if attempt.began_at is not None:
            self._forget(attempt, one)
        else:
            self._release(attempt, one)
        if isinstance(attempt.outcome, RateLimited):
            with suppress(BaseException):  # of a subclass; the finisher refuses it
                attempt.outcome._waits_for = attempt.waits_for
                retry_after_s = attempt.outcome.retry_after_s
                self._delays[one.place] = max(self._delays.get(one.place, 0.0), retry_after_s)
            self._recall(one.place)
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

    async def _read_news(self) -> float | None:
        """Recall attempts whose limits have changed; return the seconds until the next look."""
        if not self._held:
            return None
        now = self._clock.monotonic()
        if now >= self._news_at:
            stamps = await self._link.run(ops.read_stamps(list(self._held)))
            for place, stamp in stamps.items():
                held = [self._passes[one].reservation for one in self._held.get(place, ())]
                if any(one is not None and one.stamp != stamp for one in held):
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

    async def _reserve(
        self, batch: Sequence[Attempt], most_s: Sequence[float | None], *, least_s: float = 0.0
    ) -> Answers:
        before = self._clock.monotonic()
        asked = {attempt: self._passes[attempt] for attempt in batch}
        requests = [
            StartRequest(
                attempt.job.id, one.place, one.cost, attempt.job.priority, longest_s, least_s
            )
            for (attempt, one), longest_s in zip(asked.items(), most_s, strict=True)
        ]
        try:
            found = await self._link.run(ops.reserve_starts(requests))
        except DatabaseUnavailable as error:
            return refuse_all({one: one.waits_for for one in batch}, error, self._throttle)
        now = self._clock.monotonic()
        self._took_s = now - before
        answers: dict[Attempt, float | End] = {}
        for attempt, one in asked.items():
            answer = found[attempt.job.id]
            if isinstance(answer, NoSlot):
                answers[attempt] = self._refuse(attempt, answer, now)
                continue
            if attempt.is_over:  # the worker goes down, and has ended it meanwhile
                self._unused.append((one.place, answer))
                continue
            one.reservation = answer
            # The slot counts from the time of the statement, which lies between the two.
            one.slot_at = now + answer.wait_s
            attempt.begin_by = before + answer.wait_s + answer.late_s
            self._held.setdefault(one.place, set()).add(attempt)
            if answer.wait_s > 0:
                answers[attempt] = one.slot_at
        return answers

    def _refuse(self, attempt: Attempt, answer: NoSlot, now: float) -> float | End:
        waits_for = attempt.waits_for
        if answer.refusal == "locked":
            return now + LOCKED_S
        if answer.back_s is not None:
            return HandedBack(f"{waits_for}: its turn has not come", answer.back_s, waits_for)
        assert answer.refusal is not None
        why = f"{waits_for}: {REFUSALS[answer.refusal]}"
        if self._throttle.allows(why):
            job = attempt.job
            logger.warning("job %s %s does not start: %s", job.id, job.job_type, why)
        return HandedBack(why, REFUSED_S, waits_for)

    def _sort_slots(self, places: set[LimitPlace]) -> Answers:
        """Give the earliest slots to the highest priorities, among attempts of one key and cost
        that still wait: an urgent job does not wait behind what this worker holds."""
        now = self._clock.monotonic()
        answers: dict[Attempt, float | End] = {}
        for place in places:
            held = {one: self._passes[one] for one in self._held.get(place, ())}
            waiting = {one: known for one, known in held.items() if known.slot_at > now}
            for cost in {known.cost for known in waiting.values()}:
                alike = [one for one, known in waiting.items() if known.cost == cost]
                alike.sort(key=lambda attempt: waiting[attempt].slot_at)
                slots = [
                    (waiting[one].reservation, waiting[one].slot_at, one.begin_by) for one in alike
                ]
                alike.sort(key=lambda attempt: -max(0, attempt.job.priority))
                for attempt, slot in zip(alike, slots, strict=True):
                    one = waiting[attempt]
                    one.reservation, one.slot_at, attempt.begin_by = slot
                    answers[attempt] = one.slot_at
        return answers

    def _recall(self, place: LimitPlace) -> None:
        """Let the attempts that wait for slots of a key ask again."""
        recalled = list(self._held.get(place, ()))
        for attempt in recalled:
            self._release(attempt, self._passes[attempt])
        self.again.update(recalled)

    def _release(self, attempt: Attempt, one: StartPass) -> None:
        """Give up a reservation that was not used."""
        if one.reservation is not None:
            self._unused.append((one.place, one.reservation))
        self._forget(attempt, one)

    def _forget(self, attempt: Attempt, one: StartPass) -> None:
        one.reservation = None
        attempt.begin_by = inf
        self._let_go(attempt, one)

    def _let_go(self, attempt: Attempt, one: StartPass) -> None:
        held = self._held.get(one.place)
        if held is not None:
            held.discard(attempt)
            if not held:
                del self._held[one.place]
