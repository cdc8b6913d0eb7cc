"""A drain: a line of a crontab runs it, it ends when no job is due, and it prints a summary."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import monotonic

import pytest

import rota
from rota.observe.events import Event, JobDead, JobReaped, WorkerStarted
from rota.runtime.clock import Clock
from rota.worker.attempt import Attempt
from rota.worker.claimer import Claimer
from rota.worker.executor import Executor
from rota.worker.slots import SlotGroup
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, over, put, put_many, rows, value

LEFT = (
    "insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, "
    "started_at, max_attempts, losses,"
    " start_recorded)"
    " select 'left', 'running', 'gone', clock_timestamp() - interval '1 second', 1, 1, "
    "clock_timestamp() - interval '1 minute', %s, 1, true"
    " from generate_series(1, %s)"
)
"""Jobs that a worker left behind."""


@rule("M80")
def test_a_drain_is_over_when_everything_due_is_done_also_what_its_jobs_enqueued(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)

    @app.job("step")
    async def step(left: int) -> None:
        if left:
            await step.aenqueue(left - 1)

    @app.job("plain step")
    def plain_step(left: int) -> None:
        if left:
            plain_step.enqueue(left - 1)

    step.enqueue(20)
    plain_step.enqueue(20)
    step.using(delay="1h").enqueue(0)
    report = app.drain()
    assert (report.claimed, report.succeeded, report.failed, report.dead, report.oldest_due) == (
        42,
        42,
        0,
        0,
        None,
    )
    assert over(connection) == 42
    assert value(connection, "select count(*) from rota.job") == 1
    assert report.line() == "claimed 42, succeeded 42, failed 0, dead 0, oldest due: none"


@rule("M33", "M80")
def test_a_drain_recovers_what_a_dead_worker_left_however_much(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    app.job("left", retry=rota.Fixed("1h"), max_attempts=10)(_nothing)
    connection.execute(LEFT, [1, 10])
    connection.execute(LEFT, [None, 1300])
    said: list[Event] = []
    app.on(JobReaped, said.append)
    app.on(WorkerStarted, said.append)
    app.drain()
    app.close()
    assert [type(event) for event in said] == [JobReaped] * 1310 + [WorkerStarted], (
        "before its jobs, not beside them"
    )
    assert rows(
        connection,
        "select status, count(*), bool_and(run_at > clock_timestamp()) from rota.job group by 1 "
        "order by 1",
    ) == [
        ("dead", 10, False),
        ("failed", 1300, True),
    ]
    assert rows(connection, "select distinct worker, error_type from rota.attempt") == [
        ("gone", "LeaseExpired")
    ]


@rule("M80")
async def test_a_drain_with_a_limit_of_time_claims_nothing_more_after_it(
    database: str, connection: Connection
) -> None:
    jobs, ran, passed_s = rota.Jobs(), list[int](), [0.0]

    @jobs.job("again", takes_context=True)
    async def again(ctx: rota.Context) -> None:
        ran.append(ctx.job.id)
        if len(ran) == 3:
            passed_s[0] = 3600
        if len(ran) < 100:
            put(connection, "again")

    put(connection, "again")
    clock = Clock(lambda: monotonic() + passed_s[0])
    report = await Hand(database, jobs, drain=True, drain_for_s=3600, clock=clock).run()
    assert report.succeeded == over(connection) == len(ran)
    # One that was being claimed meanwhile may have run, or was handed back.
    assert len(ran) in (3, 4)
    assert report.claimed - len(ran) in (0, 1)
    assert rows(connection, "select status, attempts from rota.job") == [("queued", 0)]
    assert report.oldest_due is not None


@rule("M30", "M80")
async def test_two_drains_at_once_do_every_job_once(database: str, connection: Connection) -> None:
    seen: Counter[int] = Counter()
    both_have_some = asyncio.Barrier(2)

    def jobs() -> rota.Jobs:
        made = rota.Jobs()
        meeting = asyncio.Lock()
        has_met = False

        @made.job("one", takes_context=True)
        async def one(ctx: rota.Context) -> None:
            nonlocal has_met
            seen[ctx.job.id] += 1
            async with meeting:
                if not has_met:
                    await both_have_some.wait()
                    has_met = True

        return made

    put_many(connection, "one", 400)
    reports = await asyncio.gather(*(Hand(database, jobs(), drain=True).run() for _ in range(2)))
    assert sum(report.succeeded for report in reports) == 400
    assert all(report.succeeded > 0 for report in reports)
    assert set(seen.values()) == {1} and len(seen) == 400


@rule("M80", "M83")
async def test_a_drain_that_is_told_to_stop_ends_in_the_middle_of_its_upkeep_and_claims_nothing(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.upkeep.expirer.PORTION", 1)
    put_many(connection, "work", 20)
    connection.execute("update rota.job set expires_at = now() - interval '1 s'")
    due = put(connection, "work")
    jobs = rota.Jobs()
    jobs.job("work")(_nothing)
    hand = Hand(database, jobs, drain=True)
    hand.worker._bus.on(JobDead, lambda _: hand.worker.stop())
    assert (await hand.run()).claimed == 0
    assert value(connection, "select count(*) from rota.job where status = 'dead'") == 1, (
        "of 20, each a batch of its own"
    )
    assert rows(connection, "select status, claims from rota.job where id = %s", due) == [
        ("queued", 0)
    ]


@rule("M83", "M88")
async def test_the_claim_that_is_on_its_way_when_a_worker_stops_is_handed_back(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prefetch(group: SlotGroup, now: float) -> None:
        group.target = group.ordinary_target = group.low = group.ordinary_low = 2_000

    jobs = rota.Jobs()
    jobs.job("t")(_nothing)
    connection.execute(
        "insert into rota.job (queue, job_type, priority) "
        "select 'default', 't', 0 from generate_series(1, 1000)"
    )
    monkeypatch.setattr(SlotGroup, "measure", prefetch)  # as after many short jobs
    hand = Hand(database, jobs, slots=1, notify=False)
    take = Executor.take
    on_their_way: list[bool] = []

    def stop(executor: Executor, fresh: Sequence[Attempt]) -> None:
        on_their_way.append(hand.part(Claimer)._sent is not None)
        hand.part(Claimer).stop()
        hand.worker.stop()
        take(executor, fresh)

    monkeypatch.setattr(Executor, "take", stop)
    await hand.run()
    assert on_their_way == [True, True]
    assert rows(connection, "select distinct status from rota.job") == [("queued",)]


@rule("M80")
async def test_a_drain_waits_for_its_own_running_jobs(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    started, go = asyncio.Event(), asyncio.Event()

    @jobs.job("slow")
    async def slow() -> None:
        started.set()
        await go.wait()
        connection.execute("insert into rota.job (job_type) values ('follow up')")

    jobs.job("follow up")(_nothing)
    put(connection, "slow")
    draining = asyncio.create_task(Hand(database, jobs, drain=True, slots=3).run())
    await started.wait()
    looks: set[object] = set()
    claims = (
        "select query_start from pg_stat_activity where application_name = 'rota claim' "
        "and datname = current_database()"
    )

    def has_looked() -> bool:
        looks.update(rows(connection, claims))
        return len(looks) >= 6  # all but the first in vain

    await aeventually(has_looked)
    connection.execute("insert into rota.job (job_type) values ('follow up')")
    go.set()
    assert (await draining).succeeded == 3


def _nothing() -> None: ...
