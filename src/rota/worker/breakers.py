"""Tells breakers how attempts at their endpoints ended, before the outcomes are written: so a
breaker opens before failed jobs come again, and a trial ends before its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress

import msgspec

from rota.errors import DatabaseUnavailable
from rota.model.breaker import REASON_MAX, BreakerRules, EndpointHealth, judge_endpoint
from rota.model.failure import one_line
from rota.model.outcome import RateLimited
from rota.model.scrub import hide
from rota.observe.events import BreakerClosed, BreakerOpened, Bus
from rota.runtime.clock import Clock
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import BreakerPlace, Recorded, Refused
from rota.worker.attempt import Attempt

DEFER_S = 3.0
"""Longest time that outcomes wait for a breaker that cannot be told; up to 5 s with the pauses."""
RECENT_S = 10.0
"""How long after a breaker has opened a claim may bring jobs that were admitted before."""
OPENED = ("opened", "reopened")


class EndedAttempt(msgspec.Struct, frozen=True):
    attempt: Attempt
    rules: BreakerRules
    place: BreakerPlace
    health: EndpointHealth
    reason: str | None


class EndpointReports:
    """What the breakers of one worker's types are still to be told. Until a breaker is told of a
    failure, the executor begins no further job of it."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        on_told: Callable[[Set[BreakerPlace]], None],
        on_close: Callable[[], None],
    ) -> None:
        """`on_told` gets breakers that have just opened; `on_close` lets jobs run."""
        self._bus = bus
        self._clock = clock
        self._link = link
        self._on_told = on_told
        self._on_close = on_close
        self._news: dict[Attempt, EndedAttempt] = {}
        self._opened: dict[BreakerPlace, float] = {}
        """Breakers that have opened here lately, and when."""

    def note_ended(self, ended: Iterable[Attempt]) -> Set[BreakerPlace]:
        """Note what ended attempts say of their breakers; return these breakers."""
        places = set()
        for attempt in ended:
            if attempt.job_type.breaker is not None and (report := _judge(attempt)) is not None:
                self._news[attempt] = report
                places.add(report.place)
        return places

    def sift(self, attempts: Sequence[Attempt], now: float) -> dict[Attempt, bool]:
        """Return the attempts that may not begin. True: something must be told of their breakers
        first; False: their breakers have opened since the claim."""
        if not self._news and not self._opened:
            return {}
        self._opened = {at: since for at, since in self._opened.items() if now - since < RECENT_S}
        untold = {report.place for report in self._news.values()}
        found = {}
        for attempt in attempts:
            place = find_place(attempt)
            if place is not None and attempt.claimed_at < self._opened.get(place, 0.0):
                found[attempt] = False
            elif place in untold:
                found[attempt] = True
        return found

    def forget(self, attempt: Attempt) -> None:
        """Tell nothing of an attempt whose outcome is written or never will be."""
        if self._news.pop(attempt, None) is not None:
            self._on_told(frozenset())

    async def tell(self, ended: Sequence[Attempt]) -> tuple[list[Attempt], Refused]:
        """Tell what these attempts say. Return attempts that wait for the database, and why."""
        news = [self._news[attempt] for attempt in ended if attempt in self._news]
        if not news:
            return [], ops.LOCKED
        now = self._clock.monotonic()
        try:
            recorded = await self._link.run(ops.record_at_breakers(_add_up(news, now)))
        except DatabaseUnavailable as error:
            if not error.refused:
                raise
            recorded = Refused(str(error), of_row=False)
        if isinstance(recorded, Refused):
            for report in news:
                if now - (report.attempt.ended_at or now) >= DEFER_S:
                    self.forget(report.attempt)
            return [report.attempt for report in news if report.attempt in self._news], recorded
        for report in news:
            self._news.pop(report.attempt, None)
        of = {report.place: report for report in news}
        reasons = {report.place: report.reason for report in news if report.reason}
        for found in recorded:
            self._report(found, of[found.place].rules, reasons.get(found.place))
        opened = {found.place for found in recorded if found.change in OPENED}
        self._opened |= dict.fromkeys(opened, self._clock.monotonic())
        self._on_told(opened)
        return [], ops.LOCKED

    def _report(self, found: Recorded, rules: BreakerRules, reason: str | None) -> None:
        name, key = found.place
        if found.change in OPENED:
            self._bus.emit(
                BreakerOpened(
                    breaker=name,
                    key=key or None,
                    for_s=max(0.0, found.wait_s or 0.0),
                    failures=rules.failures if found.change == "opened" else None,
                    reason=reason or "",
                )
            )
        elif found.change == "closed":
            self._bus.emit(BreakerClosed(breaker=name, key=key or None))
            self._on_close()


def find_place(attempt: Attempt) -> BreakerPlace | None:
    """Return the breaker of a job, with its key; None: its type has none."""
    of = attempt.job_type
    return None if of.breaker is None else (of.breaker.name, of.asks.read_breaker_key(attempt.job))


def _judge(attempt: Attempt) -> EndedAttempt | None:
    """Return what to tell of an attempt; None: nothing, as of a success at a closed breaker."""
    end, place, rules = attempt.outcome, find_place(attempt), attempt.job_type.breaker
    if attempt.is_lost or end is None or place is None or rules is None:
        return None
    health, reason = EndpointHealth.UNKNOWN, None
    if attempt.began_at is not None:
        # The finisher refuses an outcome that cannot be read.
        with suppress(BaseException), hide(attempt.hidden):
            health, reason = judge_endpoint(end, attempt.job_type.rules)
        if attempt.is_trial and isinstance(end, RateLimited):
            # Otherwise all waiting jobs would try, one right after the other.
            health, reason = (
                EndpointHealth.FAILS,
                one_line(end.reason or "it wants no more for now", REASON_MAX),
            )
    if health is not EndpointHealth.FAILS and not attempt.is_trial:
        return None
    return EndedAttempt(attempt, rules, place, health, reason)


def _add_up(news: Sequence[EndedAttempt], now: float) -> list[ops.EndpointResult]:
    failures: dict[BreakerPlace, ops.EndpointResult] = {}
    trials = []
    for report in news:
        job, key = report.attempt.job, report.place[1]
        if report.attempt.is_trial:
            trials.append(
                ops.EndpointResult(
                    report.rules, key, [], report.reason, report.health, job.id, job.claims
                )
            )
            continue
        ago_s = now - (report.attempt.began_at or now)
        counted = failures.get(report.place)
        if counted is None:
            failures[report.place] = ops.EndpointResult(report.rules, key, [ago_s], report.reason)
        else:
            counted.failed_after_s.append(ago_s)
    return [*failures.values(), *trials]
