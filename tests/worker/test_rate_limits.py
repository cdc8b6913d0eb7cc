"""Rate limits as workers keep them, on the times in the database."""

from __future__ import annotations

import logging
import time

import pytest

import rota
from rota.client import DirectClient
from rota.model.outcome import End
from rota.observe.events import JobHandedBack, JobSucceeded
from rota.store.db import Database
from rota.worker.attempt import Attempt
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, put_many, rows, value


def most_within(times: list[float], per_s: float) -> int:
    """Most starts in any window of this length, which its end is not part of."""
    return max(sum(first <= at < first + per_s for at in times) for first in times)


def limited(limit: rota.RateLimit) -> rota.Jobs:
    """A type `mail` with a limit, and one without."""
    jobs = rota.Jobs()
    jobs.job("mail", rate_limit=limit)(_nothing)
    jobs.job("plain")(_nothing)
    return jobs


async def _nothing() -> None: ...


def backs(hand: Hand) -> list[JobHandedBack]:
    return [event for event in hand.events if isinstance(event, JobHandedBack)]


@rule("M62", "M88")
async def test_starts_keep_to_the_limit_and_hold_back_no_other_job(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 200)
    other = put(connection, "plain")
    jobs, begun = rota.Jobs(), list[float]()
    jobs.job("plain")(_nothing)

    @jobs.job("mail", rate_limit=rota.RateLimit("smtp", 40, per="1s", burst=4))
    async def mail() -> None:
        begun.append(time.monotonic())

    async with Hand(database, jobs, slots=5) as hand:
        await hand.heard(JobSucceeded, job=other)
        assert len(begun) < 150, "it did not wait behind all of them"
        await hand.heard(JobSucceeded, 50)
    assert most_within(begun, 1.0) <= 44
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    assert rows(connection, "select distinct attempts from rota.job") == [(0,)]


@rule("M33", "M62")
async def test_a_job_that_waits_for_its_start_holds_nothing_until_the_limit_has_changed(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 3)
    jobs = limited(rota.RateLimit("smtp", 1, per="1h"))
    async with Hand(database, jobs, slots=1) as hand:
        await hand.heard(JobSucceeded)
        await hand.heard(JobSucceeded, job=put(connection, "plain"))
        found = "select status, waits_for, attempts, claims from rota.job"
        assert rows(connection, found) == [("queued", "limit smtp", 0, 0)] * 2
        await DirectClient(Database(database)).limits.aset("smtp", 6_000, why="a new contract")
        await hand.heard(JobSucceeded, 4)


@rule("M62")
async def test_a_start_that_lies_ahead_is_waited_for(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []
    take_first_step = Attempt.take_first_step

    def watch(attempt: Attempt, now: float) -> End | None:
        waited_s.append(now - (attempt.claimed_at + attempt.starts_in_s))
        return take_first_step(attempt, now)

    monkeypatch.setattr(Attempt, "take_first_step", watch)
    put_many(connection, "mail", 20)
    jobs = limited(rota.RateLimit("smtp", 100, per="1s", burst=1))
    async with Hand(database, jobs, slots=20) as hand:
        await hand.heard(JobSucceeded, 20)
    assert min(waited_s) >= 0


@rule("M62", "M80")
@pytest.mark.parametrize(("per", "left"), [("1s", []), ("1h", [("limit smtp 1", "1")])])
async def test_each_key_has_its_own_limit_and_a_drain_waits_for_the_next_seconds(
    database: str, connection: Connection, per: str, left: list[tuple[str, str]]
) -> None:
    jobs = rota.Jobs()

    @jobs.job("mail", rate_limit=rota.RateLimit("smtp", 1, per=per, key=lambda account: account))
    async def mail(account: int) -> None: ...

    for account in (1, 1, 2, 3):
        put(connection, "mail", account=account)
    await Hand(database, jobs, drain=True).run()
    waits = "select waits_for, payload ->> 'account' from rota.job"
    assert rows(connection, waits) == left


@rule("M62")
async def test_a_handler_that_is_told_to_wait_delays_its_key_or_without_a_limit_its_job(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    async def ask(told: bool = False) -> None:
        if told:
            raise rota.RateLimited("429", retry_after="1h")

    jobs.job("mail", rate_limit=rota.RateLimit("smtp", 1_000, per="1m"))(ask)
    jobs.job("free")(ask)
    async with Hand(database, jobs) as hand:
        first = await hand.heard(JobHandedBack, job=put(connection, "mail", told=True))
        assert (first.why, first.waits_for) == ("429", "limit smtp")
        other, held = put(connection, "mail"), "select waits_for from rota.job where id = %s"
        await aeventually(lambda: value(connection, held, other) == "limit smtp")
        alone = await hand.heard(JobHandedBack, job=put(connection, "free", told=True))
        assert (alone.run_in_s, alone.waits_for) == (3_600.0, None)
        assert alone.level_now == logging.DEBUG, "a partner that answers 429 fills no log"
        await hand.heard(JobSucceeded, job=put(connection, "free"))
    found = "select distinct attempts, run_at > now() + interval '50 min' from rota.job"
    assert rows(connection, found) == [(0, True)]


@rule("M62")
async def test_a_handler_whose_first_step_comes_too_late_does_not_begin(
    database: str, connection: Connection
) -> None:
    """The handler before it blocked the loop; by then its slot lies too far back."""
    jobs = rota.Jobs()
    began: list[int] = []

    @jobs.job("mail", rate_limit=rota.RateLimit("smtp", 10, per="1s", burst=2))
    async def mail(n: int) -> None:
        if not began:
            time.sleep(1)  # noqa: ASYNC251 - that is the point
        began.append(n)

    for n in (1, 2):
        put(connection, "mail", n=n)
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, 2)
    assert [back.why for back in backs(hand)] == ["it would have begun too late after its turn"]
    assert began == [1, 2]
