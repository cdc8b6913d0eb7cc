"""Rate limits as workers keep them, on the times in the database."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta

import rota
from rota.client import DirectClient
from rota.observe.events import JobHandedBack, JobSucceeded
from rota.store.db import Database
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, put_many, rows, value


def starts(connection: Connection, job_type: str = "mail") -> list[datetime]:
    """When the jobs of a type began, by the database's clock."""
    found = rows(
        connection,
        "select started_at from rota.job_history where job_type = %s order by 1",
        job_type,
    )
    return [row[0] for row in found]


def most_within(times: list[datetime], per_s: float) -> int:
    """Most starts in any window of this length, which its end is not part of."""
    per = timedelta(seconds=per_s)
    return max(sum(first <= at < first + per for at in times) for first in times)


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
    jobs = limited(rota.RateLimit("smtp", 40, per="1s", burst=4))
    async with Hand(database, jobs, slots=5) as hand:
        await hand.heard(JobSucceeded, job=other)
        assert len(starts(connection)) < 150, "it did not wait behind all of them"
        await hand.heard(JobSucceeded, 50)
    assert most_within(starts(connection), 1.0) <= 44
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    assert rows(connection, "select distinct attempts from rota.job") == [(0,)]


@rule("M33", "M62")
async def test_a_job_that_waits_for_its_start_takes_no_slot_and_keeps_its_lease(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 2)
    jobs = limited(rota.RateLimit("smtp", 1, per="9500ms", burst=1))
    async with Hand(database, jobs, slots=1, lease_s=2.0) as hand:
        await hand.heard(JobSucceeded)
        await hand.heard(JobSucceeded, job=put(connection, "plain"))
        leases: set[tuple[object, ...]] = set()

        def is_renewed_twice_or_lost() -> bool:
            leases.update(rows(connection, "select claims, locked_until from rota.job"))
            return len(leases) > 3

        await asyncio.to_thread(eventually, is_renewed_twice_or_lost, 60)
        assert rows(connection, "select status, claims from rota.job") == [("running", 1)]
        tat = "select tat from rota.rate_limit_key"
        [(reserved,)] = rows(connection, tat)
    [(returned,)] = rows(connection, tat)
    assert returned < reserved, "a worker that stops returns the starts that it has not used"
    assert [back.why for back in backs(hand)] == ["the worker is going down"]
    assert rows(connection, "select status, attempts from rota.job") == [("queued", 0)]


@rule("M62")
async def test_a_change_of_the_limit_holds_for_jobs_that_wait_in_a_worker(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 3)
    jobs = limited(rota.RateLimit("smtp", 1, per="9500ms", burst=1))
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded)
        waits = "select count(*) from rota.job where status = 'running'"
        await asyncio.to_thread(eventually, lambda: value(connection, waits))
        await DirectClient(Database(database)).limits.aset("smtp", 6_000, why="a new contract")
        await hand.heard(JobSucceeded, 3)
    first, *_, last = starts(connection)
    assert last - first < timedelta(seconds=9), "before the start that it had reserved"


@rule("M62")
async def test_each_key_has_a_limit_of_its_own(database: str, connection: Connection) -> None:
    jobs = rota.Jobs()
    limit = rota.RateLimit("smtp", 1, per="1h", key=lambda account: account)

    @jobs.job("mail", rate_limit=limit)
    async def mail(account: int) -> None: ...

    for account in (1, 1, 2, 3):
        put(connection, "mail", account=account)
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, 3)
        await hand.heard(JobHandedBack)
    assert rows(connection, "select waits_for, payload ->> 'account' from rota.job") == [
        ("limit smtp 1", "1")
    ]


@rule("M62")
async def test_a_handler_that_is_told_to_wait_delays_its_key_or_without_a_limit_its_job(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    async def ask(told: bool = False) -> None:
        if told:
            raise rota.RateLimited("429", retry_after="1h")

    jobs.job("mail", rate_limit=rota.RateLimit("smtp", 1_000, per="1s"))(ask)
    jobs.job("free")(ask)
    async with Hand(database, jobs) as hand:
        first = await hand.heard(JobHandedBack, job=put(connection, "mail", told=True))
        assert first.why == "429"
        back = await hand.heard(JobHandedBack, job=put(connection, "mail"))
        assert back.waits_for == "limit smtp"
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


@rule("M61", "M62")
async def test_an_urgent_job_takes_the_slot_of_an_ordinary_one_of_its_worker(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 30)
    jobs = limited(rota.RateLimit("smtp", 30, per="30s", burst=1))  # a slot a second
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, 2)
        connection.execute("insert into rota.job (job_type, priority) values ('mail', 50)")
        urgent = int(str(value(connection, "select id from rota.job where priority = 50")))
        await hand.heard(JobSucceeded, job=urgent)
        done = [event.job for event in hand.events if isinstance(event, JobSucceeded)]
    assert done.index(urgent) <= 5  # at the end of what is reserved it would be the eleventh


@rule("M62", "M63")
async def test_jobs_whose_gate_cannot_be_asked_hold_back_no_others_and_come_again(
    database: str, connection: Connection
) -> None:
    jobs = limited(rota.RateLimit("smtp", 1_000, per="1s", burst=100))
    jobs.job("call", breaker=rota.Breaker("shop"))(_nothing)
    for function in ("limit_reserve", "breaker_look"):
        connection.execute(f"alter function rota.{function} rename to {function}_gone".encode())
    connection.execute("alter function rota.limit_stamps rename to gone")  # for ever: it is news
    put_many(connection, "mail", 10)
    put_many(connection, "call", 10)
    plain = [put(connection, "plain") for _ in range(3)]
    async with Hand(database, jobs, slots=2) as hand:
        for job in plain:
            await hand.heard(JobSucceeded, job=job)
        await hand.heard(JobHandedBack, 20)
        said = {back.why for back in backs(hand)}
        assert any("function rota.limit_reserve" in why for why in said), said
        assert any("function rota.breaker_look" in why for why in said), said
        for function in ("limit_reserve", "breaker_look"):
            connection.execute(f"alter function rota.{function}_gone rename to {function}".encode())
        connection.execute("update rota.job set run_at = now()")
        await hand.heard(JobSucceeded, 23, timeout_s=60)
