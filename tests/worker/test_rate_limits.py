"""Rate limits as workers keep them, on the times in the database."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.client import DirectClient
from rota.observe.events import JobDead, JobHandedBack, JobSucceeded
from rota.store.db import Database
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
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


@rule("M62")
async def test_starts_keep_to_the_limit_and_use_it(database: str, connection: Connection) -> None:
    put_many(connection, "mail", 200)
    jobs = limited(rota.RateLimit("smtp", 40, per="1s", burst=4))
    async with Hand(database, jobs, slots=5) as hand:
        await hand.heard(JobSucceeded, 200, timeout_s=60)
    found = starts(connection)
    assert most_within(found, 1.0) <= 44
    assert (found[-1] - found[0]).total_seconds() < 10  # at best 5.3 s


@rule("M62")
async def test_jobs_beyond_the_limit_are_handed_back_at_most_twice_on_average_and_uncharged(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 3_000)
    other = put(connection, "plain")
    jobs = limited(rota.RateLimit("smtp", 500, per="1s", burst=50))
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, job=other)
        assert len(starts(connection)) < 2_900  # it did not wait behind all of them
        await hand.heard(JobSucceeded, 3_001, timeout_s=60)
    assert 0 < len(backs(hand)) <= 2 * 3_000
    found = starts(connection)
    assert most_within(found, 1.0) <= 550
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]


@rule("M61", "M62")
async def test_an_urgent_job_takes_a_slot_before_ten_thousand_others(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 10_000)
    jobs = limited(rota.RateLimit("smtp", 100, per="1m", burst=10))
    async with Hand(database, jobs) as hand:
        waiting = "select count(*) from rota.job where waits_for = 'limit smtp'"
        await hand.until(lambda: value(connection, waiting) >= 9_900, 60)  # type: ignore[operator]
        connection.execute("insert into rota.job (job_type, priority) values ('mail', 50)")
        urgent = value(connection, "select id from rota.job where priority = 50")
        await hand.heard(JobSucceeded, job=int(str(urgent)), timeout_s=20)
    [(waited_s,)] = rows(
        connection,
        "select extract(epoch from started_at - created_at)::float8 from rota.job_history "
        "where priority = 50",
    )
    assert waited_s < 11


@rule("M62")
@pytest.mark.slow
@pytest.mark.waits
def test_starts_never_exceed_limit_and_burst_when_one_worker_of_four_stands_still(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    for _ in range(4):
        start_worker(database, module="tests.worker.limit_app", concurrency=3)
    put_many(connection, "mail", 100)
    eventually(lambda: len(starts(connection)) > 20, what="some have started")
    put(connection, "stall", seconds=5)
    eventually(lambda: len(starts(connection)) == 100, 90, what="all have started")
    found = starts(connection)
    assert most_within(found, 2.0) <= 25
    assert value(connection, "select sum(attempts) from rota.job_history") == 101


@rule("M62")
async def test_a_change_gives_back_first_what_a_worker_holds(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 300)
    jobs = limited(rota.RateLimit("smtp", 10, per="1s", burst=1))
    async with Hand(database, jobs) as hand:
        waiting = "select count(*) from rota.job where status = 'queued' and waits_for is not null"
        await hand.until(lambda: value(connection, waiting) > 100, 30)  # type: ignore[operator]
        began = len(starts(connection))
        connection.execute("select rota.limit_set('smtp', 11)")
        await hand.until(lambda: len(starts(connection)) >= began + 30, 30)
    found = starts(connection)
    assert max(after - before for before, after in pairwise(found)) < timedelta(seconds=4)


@rule("M62", "M43")
@pytest.mark.parametrize("what", ["key", "cost"])
async def test_a_function_of_a_limit_that_raises_makes_the_job_dead_with_the_reason(
    database: str, connection: Connection, what: str
) -> None:
    jobs = rota.Jobs()
    ran: list[int] = []

    def fails(n: int) -> Any:
        return {1: "one"}[n] if what == "key" else 2

    options: dict[str, Any] = {what: fails}

    @jobs.job("mail", rate_limit=rota.RateLimit("smtp", 10, per="1s", **options))
    async def mail(n: int) -> None:
        ran.append(n)

    job = put(connection, "mail", n=2)
    async with Hand(database, jobs) as hand:
        dead = await hand.heard(JobDead, job=job)
    assert f"rate_limit {what} function at {__file__}" in dead.failure.message
    assert dead.failure.error_type == ("KeyError" if what == "key" else "rota.errors.UsageError")
    assert ran == []


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
@pytest.mark.parametrize("way", ["task", "thread", "process"])
async def test_a_handler_that_is_told_to_wait_delays_its_key_for_all_workers(
    database: str, connection: Connection, tmp_path: Path, way: str
) -> None:
    jobs = rota.Jobs()
    handler: Any = ahasty if way == "task" else hasty
    jobs.job("mail", rate_limit=SMTP, process=way == "process")(handler)
    told = str(tmp_path / "told")
    first = put(connection, "mail", told=told)
    async with Hand(database, jobs) as hand:
        await hand.until(lambda: "429" in [back.why for back in backs(hand)])
        told_at = value(connection, "select clock_timestamp()")
        for _ in range(3):
            put(connection, "mail", told=told)
        await hand.heard(JobSucceeded, 4)
    assert isinstance(told_at, datetime)
    assert min(starts(connection)) > told_at + timedelta(seconds=2)
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    assert first


SMTP = rota.RateLimit("smtp", 1_000, per="1s")


async def ahasty(told: str) -> None:
    hasty(told)


def hasty(told: str) -> None:
    """Be told to wait, once."""
    if not Path(told).exists():
        Path(told).touch()
        raise rota.RateLimited("429", retry_after="3s")


@rule("M62")
async def test_a_type_without_a_limit_lets_just_that_job_wait(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    jobs = rota.Jobs()
    jobs.job("mail")(ahasty)
    told = str(tmp_path / "told")
    first = put(connection, "mail", told=told)
    async with Hand(database, jobs) as hand:
        back = await hand.heard(JobHandedBack, job=first)
        await hand.heard(JobSucceeded, job=put(connection, "mail", told=told))
    assert (back.run_in_s, back.waits_for) == (3.0, None)
    assert back.level_now == logging.DEBUG, "a partner that answers 429 fills no log"
    assert rows(connection, "select id, status, attempts, waits_for from rota.job") == [
        (first, "queued", 0, None)
    ]


@rule("M62")
async def test_a_worker_that_stops_returns_the_slots_that_it_has_not_used(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 30)
    jobs = limited(rota.RateLimit("smtp", 30, per="30s", burst=1))  # a slot a second
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded)
        ahead = "select max(tat) > rota.clock() + interval '5 s' from rota.rate_limit_key"
        await hand.until(lambda: bool(value(connection, ahead)))
    assert value(connection, ahead) is False
    assert rows(connection, "select distinct status, attempts from rota.job") == [("queued", 0)]


@rule("M62")
async def test_a_change_of_the_limit_holds_at_once_also_for_jobs_that_wait_in_a_worker(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 300)
    jobs = limited(rota.RateLimit("smtp", 60, per="1m", burst=1))  # a slot a second
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, 2)
        await DirectClient(Database(database)).limits.aset("smtp", 6_000, why="a new contract")
        await hand.heard(JobSucceeded, 300, timeout_s=20)  # else 5 minutes


@rule("M62")
async def test_a_limit_that_was_lowered_by_sql_holds_within_a_second(
    database: str, connection: Connection
) -> None:
    put_many(connection, "mail", 300)
    jobs = limited(rota.RateLimit("smtp", 600, per="1m", burst=1))  # ten a second
    async with Hand(database, jobs) as hand:
        await hand.heard(JobSucceeded, 5)
        connection.execute("update rota.rate_limit set starts = 1, per = '1h'")
        lowered = value(connection, "select clock_timestamp()")
        held = "select count(*) <= 1 from rota.job where status = 'running'"
        await hand.until(lambda: bool(value(connection, held)))
    assert isinstance(lowered, datetime)
    late = [at for at in starts(connection) if at > lowered + timedelta(seconds=2)]
    assert len(late) <= 1  # the first of the new pace


@rule("M62")
async def test_a_late_start_reserves_anew(database: str, connection: Connection) -> None:
    """All slots of the worker are taken for longer than a slot of the limit holds."""
    jobs = limited(rota.RateLimit("smtp", 10, per="1s", burst=1))

    @jobs.job("long", priority=5)
    async def long() -> None:
        await asyncio.sleep(1)

    put_many(connection, "long", 3)
    put_many(connection, "mail", 12)
    async with Hand(database, jobs, slots=1) as hand:
        await hand.heard(JobSucceeded, 15, timeout_s=60)
    assert most_within(starts(connection), 1.0) <= 11


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


@rule("M33", "M62")
@pytest.mark.slow
def test_the_jobs_of_a_killed_worker_come_back_and_keep_to_the_limit(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    """Its slots are lost, its jobs are not, and none is charged."""
    put_many(connection, "mail", 60)
    killed = start_worker(database, module="tests.worker.limit_app", concurrency=3)
    eventually(lambda: len(starts(connection)) > 5, what="some have started")
    killed.kill()
    start_worker(database, module="tests.worker.limit_app", concurrency=3)
    eventually(lambda: len(starts(connection)) == 60, 60, what="all have started")
    assert most_within(starts(connection), 2.0) <= 25
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]


@rule("M62")
def test_many_workers_put_jobs_back_at_most_twice_on_average(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    put_many(connection, "fast", 2_000)
    for _ in range(3):
        start_worker(database, module="tests.worker.limit_app", concurrency=5)
    eventually(lambda: len(starts(connection, "fast")) == 2_000, 60, what="all have started")
    found = starts(connection, "fast")
    assert most_within(found, 1.0) <= 330
    # Each put-back is two more of `claims`, beside the two of the run itself.
    claims = value(connection, "select sum(claims)::int from rota.job_history")
    assert isinstance(claims, int)
    assert (claims - 2 * 2_000) / 2 <= 2 * 2_000
    assert (found[-1] - found[0]).total_seconds() < 12  # at best 7.3 s
