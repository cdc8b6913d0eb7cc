"""The gate of circuit breakers: while one is open its jobs are handed back, and then one tries.

It also records what ended attempts say of their endpoints. Until a failure is recorded, no further
job of its key gets a slot, and the outcome of its own job is not written: so the breaker opens
before failing jobs fill all slots again, and a trial ends before its job does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rota.declare.declaration import Declaration
from rota.errors import DatabaseUnavailable
from rota.model.breaker import BreakerRules, EndpointHealth, format_waits_for, judge_endpoint
from rota.model.outcome import End, HandedBack, RateLimited
from rota.model.scrub import hide
from rota.observe.events import BreakerClosed, BreakerOpened, Bus
from rota.runtime.clock import Clock
from rota.runtime.throttle import Throttle
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import Blocked, BreakerPlace, Recorded
from rota.worker.attempt import Attempt
from rota.worker.gates import LOG_S, Answers, Gate, Park, refuse_all

SEEN_S = 0.1
"""A worker that has seen a breaker looks again no sooner: ten thousand jobs are handed back with
ten looks a second."""
SEEN_MAX = 10_000
"""With more breakers seen, those that it saw longest ago are forgotten."""
FRESH_S = 1.0
"""An attempt that is about to begin looks again at a breaker that it saw closed longer ago: another
worker may have opened it."""
SPREAD = 0.25
"""Jobs that are handed back come due over this share of the wait, not all at once."""
SPREAD_S = (1.0, 60.0)
"""The shortest and the longest of these times."""
TRIAL_S_MAX = 60.0
"""Jobs that find a trial are handed back for no longer: its success releases them, but its failure
may say that the wait is shorter than its deadline."""
UNTIL_RESET_S = 3_600.0
"""How long jobs are handed back that wait for a person. The reset releases them."""
TRIAL_MARGIN_S = 10.0
"""How much longer than its timeout a trial may take until another may try."""
RELEASE_MAX = 1_000
"""Most waiting jobs that one statement releases."""
RELEASE_S = 30.0
"""Seconds between two searches for closed breakers with waiting jobs: a worker may have been lost
while it released them, or a person has reset one."""
RELEASE_AGAIN_S = 6.0
"""The same after a close: until then a worker may have handed back jobs that looked before it."""
DEFER_S = 5.0
"""How long the outcomes of attempts wait until what they say of their endpoints is recorded."""


class BreakerPass:
    """What the gate knows of one attempt. Times are monotonic seconds."""

    __slots__ = ("is_candidate", "is_trial", "looked_at", "place")

    def __init__(self, place: BreakerPlace) -> None:
        self.place = place
        self.looked_at = 0.0
        self.is_candidate = False
        """Whether it asks to be the trial once it has a slot."""
        self.is_trial = False


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """What an attempt says of its endpoint."""

    attempt: Attempt
    known: BreakerPass
    health: EndpointHealth
    reason: str | None


class WritesEnded(Protocol):
    """Writes the outcomes of attempts: the finisher."""

    def take(self, ended: Sequence[Attempt]) -> None: ...


class BreakerGate(Gate):
    """Asks breakers for attempts, and tells them how the attempts ended."""

    is_first = keeps = True

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        types: Collection[Declaration],
        finisher: WritesEnded,
    ) -> None:
        self.again = set()
        self._bus = bus
        self._clock = clock
        self._link = link
        self._finisher = finisher
        self.types = frozenset(one for one in types if one.breaker is not None)
        self._passes: dict[Attempt, BreakerPass] = {}
        """What it knows of the attempts that have not ended."""
        self._seen: dict[BreakerPlace, tuple[Blocked | None, float]] = {}
        """How each breaker stood when it was last seen, and when that was; None: closed."""
        self._forgot_at = 0.0
        self._candidates: dict[BreakerPlace, Attempt] = {}
        self._unrecorded: list[EndedAttempt] = []
        """Those of which something is to be recorded."""
        self._deferred: dict[Attempt, BreakerPlace] = {}
        """Those of them that the finisher does not have yet: their outcomes are not written
        before."""
        self._recorded = asyncio.Event()
        self._recorded.set()
        self._throttle = Throttle(self._clock, LOG_S)
        self._release_at = 0.0
        self._released = 0
        """Batches since the breaker closed: each is due a second after the one before."""

    # Before an attempt begins

    def choose(self, claimed: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return those of a type with a breaker, and read their keys."""
        chosen = super().choose(claimed)
        for attempt in chosen:
            key = attempt.job_type.asks.read_breaker_key(attempt.job)
            self._passes[attempt] = BreakerPass((_rules(attempt).name, key))
        return chosen

    async def ask(self, batch: Sequence[Attempt]) -> Answers:
        """Hand back those whose breaker is open, but for one candidate of each that is due."""
        await self._record()
        now = self._clock.monotonic()
        asked = [(one, known) for one in batch if (known := self._passes.get(one)) is not None]
        stale = {one.place for _, one in asked if not self._is_fresh(one.place, now)}
        if stale:
            try:
                found = await self._link.run(ops.look_at_breakers(sorted(stale)))
            except DatabaseUnavailable as error:
                return self._refuse_all(asked, error)
            now = self._clock.monotonic()
            for place in stale:
                self._note(place, found.get(place), now)
        answers: dict[Attempt, float | End] = {}
        for attempt, one in asked:
            one.looked_at = now
            blocked, _ = self._seen[one.place]  # `keep` forgets, and does not run beside this
            if blocked is None:
                continue
            if blocked.state == "due" and self._candidates.get(one.place, attempt) is attempt:
                self._candidates[one.place] = attempt
                one.is_candidate = True
                continue
            answers[attempt] = self._hand_back(attempt, one.place, blocked)
        return answers

    def look(self, attempt: Attempt, now: float) -> Park | End | None:
        """Put it back if its breaker has opened in this worker; ask again if the last look is
        long ago, or a failure of its key is not recorded yet."""
        one = self._passes.get(attempt)
        if one is None or one.is_trial:
            return None
        if one.is_candidate:
            return Park.IN_SLOT
        if self._deferred and one.place in self._deferred.values():
            return Park.WITHOUT_SLOT
        blocked, at = self._seen.get(one.place, (None, one.looked_at))
        if now - at > (FRESH_S if blocked is None else SEEN_S):
            return Park.WITHOUT_SLOT
        return None if blocked is None else self._hand_back(attempt, one.place, blocked)

    async def ask_in_slot(self, batch: Sequence[Attempt]) -> Answers:
        """Let candidates be the trial, one of all workers for each breaker; ask anew for others
        that were asked for long ago."""
        await self._record()
        now = self._clock.monotonic()
        asked = [
            (attempt, one)
            for attempt in batch
            if (one := self._passes.get(attempt)) is not None
            and not one.is_trial
            and (one.is_candidate or not self._is_fresh(one.place, now))
        ]
        if not asked:
            return {}
        tries = [
            ops.Try(
                *one.place,
                attempt.job.id,
                attempt.job.claims,
                attempt.timeout_s + TRIAL_MARGIN_S,
            )
            for attempt, one in asked
        ]
        try:
            found = await self._link.run(ops.try_breakers(tries))
        except DatabaseUnavailable as error:
            return self._refuse_all(asked, error)
        now = self._clock.monotonic()
        answers: dict[Attempt, float | End] = {}
        for attempt, one in asked:
            answer = found[attempt.job.id]
            self._withdraw(attempt, one)
            one.looked_at = now
            if isinstance(answer, bool):
                one.is_trial = answer
                blocked = ops.Blocked(one.place[1], "trial", attempt.timeout_s) if answer else None
                self._note(one.place, blocked, now)
            else:
                self._note(one.place, answer, now)
                answers[attempt] = self._hand_back(attempt, one.place, answer)
        return answers

    # After it has ended

    def note_end(self, attempt: Attempt) -> bool:
        """Take what an ended attempt says of its endpoint; return whether its outcome must wait
        until that is recorded."""
        one = self._passes.pop(attempt, None)
        if one is None:
            return False
        self._withdraw(attempt, one)
        health, reason = EndpointHealth.UNKNOWN, None
        if attempt.began_at is not None and not attempt.is_lost and attempt.outcome is not None:
            # The finisher refuses an outcome that cannot be read.
            with suppress(BaseException), hide(attempt.hidden):
                health, reason = judge_endpoint(attempt.outcome, attempt.job_type.rules)
            if one.is_trial and isinstance(attempt.outcome, RateLimited):
                # Otherwise all that wait would try, one right after the other.
                health = EndpointHealth.FAILS
                reason = attempt.outcome.reason or "it wants no more for now"
        if health is not EndpointHealth.FAILS and not one.is_trial:
            return False  # a success while it is closed writes nothing
        self._unrecorded.append(EndedAttempt(attempt, one, health, reason))
        self._deferred[attempt] = one.place
        self._recorded.clear()
        return True

    async def keep(self) -> float | None:
        """Record what ended attempts say, and release what waits for closed breakers."""
        await self._record()
        now = self._clock.monotonic()
        self._forget(now)
        if now >= self._release_at:
            count = await self._link.run(ops.release_breakers(RELEASE_MAX, float(self._released)))
            again_s = RELEASE_AGAIN_S if count else RELEASE_S
            self._released = self._released + 1 if count >= RELEASE_MAX else 0
            self._release_at = now if self._released else now + again_s
        return max(0.0, self._release_at - now)

    async def flush(self, for_s: float) -> None:
        """Wait until everything is recorded, at most so long; then let the outcomes be written."""
        await self._clock.wait(self._recorded, timeout_s=min(for_s, DEFER_S))
        self._pass_on(list(self._deferred))

    async def _record(self) -> None:
        """Record in one statement what has ended since."""
        ended, self._unrecorded = self._unrecorded, []
        if not ended:
            return
        now = self._clock.monotonic()
        try:
            recorded = await self._link.run(ops.record_at_breakers(_add_up(ended, now)))
        except DatabaseUnavailable as error:
            # If it was committed after all, these failures count twice. A trial ends only once.
            late = [one for one in ended if error.refused or _is_late(one.attempt, now)]
            self._pass_on(one.attempt for one in late)
            self._unrecorded = [one for one in ended if one not in late] + self._unrecorded
            raise
        now = self._clock.monotonic()
        rules = {one.known.place[0]: _rules(one.attempt) for one in ended}
        reasons = {one.known.place: one.reason for one in ended if one.reason}
        for found in recorded:
            self._note(found.place, found.blocked, now)
            self._report(found, rules[found.place[0]], reasons.get(found.place))
        self._pass_on(one.attempt for one in ended)

    def _pass_on(self, ended: Iterable[Attempt]) -> None:
        """Let the outcomes of attempts be written."""
        for attempt in ended:
            if self._deferred.pop(attempt, None) is not None:
                self._finisher.take([attempt])
        if not self._deferred:
            self._recorded.set()

    def _report(self, one: Recorded, rules: BreakerRules, reason: str | None) -> None:
        name, key = one.place
        if one.change in ("opened", "reopened"):
            wait_s = None if one.blocked is None else one.blocked.wait_s
            self._bus.emit(
                BreakerOpened(
                    breaker=name,
                    key=key or None,
                    for_s=max(0.0, wait_s or 0.0),
                    failures=rules.failures if one.change == "opened" else None,
                    reason=reason or "",
                )
            )
        elif one.change == "closed":
            self._release_at, self._released = 0.0, 0
            self._bus.emit(BreakerClosed(breaker=name, key=key or None))

    # What it knows

    def _is_fresh(self, place: BreakerPlace, now: float) -> bool:
        seen = self._seen.get(place)
        return seen is not None and now - seen[1] < SEEN_S

    def _note(self, place: BreakerPlace, blocked: Blocked | None, now: float) -> None:
        self._seen[place] = blocked, now

    def _forget(self, now: float) -> None:
        """Forget keys of users who come once: at most once in FRESH_S, because it reads all."""
        if len(self._seen) > SEEN_MAX and now - self._forgot_at > FRESH_S:
            self._seen = {one: seen for one, seen in self._seen.items() if now - seen[1] <= FRESH_S}
            self._forgot_at = now

    def _withdraw(self, attempt: Attempt, one: BreakerPass) -> None:
        one.is_candidate = False
        if self._candidates.get(one.place) is attempt:
            del self._candidates[one.place]

    def _refuse_all(
        self, asked: Iterable[tuple[Attempt, BreakerPass]], error: DatabaseUnavailable
    ) -> Answers:
        batch = {attempt: format_waits_for(*one.place) for attempt, one in asked}
        return refuse_all(batch, error, self._throttle)

    def _hand_back(self, attempt: Attempt, place: BreakerPlace, blocked: Blocked) -> HandedBack:
        """Return when it comes back: at the end of the wait, and some time after it by chance."""
        name, _ = place
        waits_for = format_waits_for(name, blocked.blocked_by)
        if blocked.state == "open":
            wait_s = UNTIL_RESET_S if blocked.wait_s is None else max(0.0, blocked.wait_s)
            why = f"the {waits_for} is open"
        else:
            wait_s = min(attempt.timeout_s, TRIAL_S_MAX)
            why = f"the {waits_for} is open, and another job tries"
        spread_s = min(max(SPREAD_S[0], wait_s * SPREAD), SPREAD_S[1])
        return HandedBack(why, wait_s + random.random() * spread_s, waits_for)


def _rules(attempt: Attempt) -> BreakerRules:
    assert attempt.job_type.breaker is not None
    return attempt.job_type.breaker


def _is_late(attempt: Attempt, now: float) -> bool:
    assert attempt.ended_at is not None
    return now - attempt.ended_at > DEFER_S


def _add_up(ended: Iterable[EndedAttempt], now: float) -> list[ops.EndpointResult]:
    """Return the failures of each breaker, and each trial."""
    failures: dict[BreakerPlace, ops.EndpointResult] = {}
    trials = []
    for one in ended:
        attempt, place = one.attempt, one.known.place
        rules, (_, key) = _rules(attempt), place
        if one.known.is_trial:
            job = attempt.job
            trials.append(
                ops.EndpointResult(rules, key, [], one.reason, one.health, job.id, job.claims)
            )
            continue
        ago_s = now - (attempt.began_at or now)
        counted = failures.get(place)
        if counted is None:
            failures[place] = ops.EndpointResult(rules, key, [ago_s], one.reason)
        else:
            counted.failed_after_s.append(ago_s)
    return [*failures.values(), *trials]
