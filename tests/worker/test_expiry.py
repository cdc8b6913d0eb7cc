"""Jobs that expire: noticed by any worker that is up, by the next drain, and by the worker that
claims one too late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.model.job import Job, Status
from rota.model.settle import settle
from rota.observe.events import Bus, Event, JobCancelled, JobDead, WorkerStarted
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep import expirer
from rota.upkeep.expirer import Expirer
from rota.worker.attempt import Attempt
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.worker.alone import give, lone_executor
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value


def _put_late(connection: Connection, job_type: str, count: int = 1, by: str = "5 s") -> None:
    """Jobs that had been due for a while before they expired, so long ago."""
    connection.execute(
        "insert into rota.job (job_type) select %s from generate_series(1, %s)", [job_type, count]
    )
    connection.execute(
        "update rota.job set run_at = rota.clock() - interval '2 days', "
        "expires_at = rota.clock() - %s::interval"
        " where status = 'queued' and expires_at is null",
        [by],
    )


@pytest.fixture
def jobs() -> rota.Jobs:
    """One type."""
    jobs = rota.Jobs()

    @jobs.job("quick")
    async def quick() -> None: ...

    return jobs


@rule("M36")
async def test_a_worker_that_is_up_ends_jobs_that_it_would_never_claim(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Expirer, "asked_every_s", 0.05)
    async with Hand(database, jobs) as hand:
        job = put(connection, "stranger")
        connection.execute("update rota.job set expires_at = rota.clock() + interval '0.3 s'")
        dead = await hand.heard(JobDead, job=job)
    assert (dead.failure.error_type, dead.failure.verdict, dead.failure.verdict_rule) == (
        "Expired",
        "fatal",
        "expired",
    )
    assert dead.failure.message.endswith(": no live worker knew its type 'stranger'")
    assert (dead.job_type, dead.attempt, dead.claim, dead.worker) == ("stranger", 1, 0, hand.name)
    assert status(connection, job) == "dead"


@rule("M36", "M80")
def test_a_drain_ends_what_has_expired_however_much_before_it_claims(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)
    app.job("known")(lambda: None)
    heard: list[Event] = []
    app.on(JobDead, heard.append)
    app.on(WorkerStarted, heard.append)
    _put_late(connection, "known", 700)
    _put_late(connection, "stranger", 700, "1 day")
    assert app.drain().claimed == 0
    app.close()
    assert [type(event) for event in heard] == [JobDead] * 1400 + [WorkerStarted], (
        "before its jobs, not beside them"
    )
    assert rows(
        connection,
        "select distinct status, attempts, claims, last_error like '%%: no worker was alive' "
        "from rota.job",
    ) == [("dead", 0, 0, True)]
    assert (
        len({event.job for event in heard if isinstance(event, JobDead)})
        == value(connection, "select count(*) from rota.attempt")
        == 1400
    )


@rule("M36", "M43")
@pytest.mark.parametrize(
    ("due_s", "expires_s", "held_s", "said"),
    [
        (
            -10,
            2,
            5,
            "it was claimed in time, but its worker's slots were busy until 3.0 s too late",
        ),
        (
            -10,
            -4,
            1,
            "it was due at 2026-01-01 11:59:50+00:00 and would have started 5.0 s too late: "
            "the workers were busy, or none was alive",
        ),
        (-3, -4, 1, "it was not due before 2026-01-01 11:59:57+00:00"),
        (
            -10,
            0,
            0,
            "it was due at 2026-01-01 11:59:50+00:00 and would have started 0.0 s too late: "
            "the workers were busy, or none was alive",
        ),
        (-10, 2, 1, None),
        (-10, None, 1, None),
    ],
)
async def test_a_job_whose_turn_comes_too_late_never_starts_and_says_why(
    jobs: rota.Jobs,
    due_s: float,
    expires_s: float | None,
    held_s: float,
    said: str | None,
) -> None:
    clock = ManualClock()
    executor, others = lone_executor(clock=clock)
    claimed = datetime(2026, 1, 1, 12, tzinfo=UTC)
    expires_at = None if expires_s is None else claimed + timedelta(seconds=expires_s)
    job = Job(
        id=1, origin_id=1, queue="default", job_type="quick", payload_json="{}",
        payload_version=None, priority=0,
        run_at=claimed + timedelta(seconds=due_s), expires_at=expires_at, attempts=1,
        max_attempts=None, claims=1, idempotency_key=None,
        meta_json=None, created_at=claimed, locked_by="w", started_at=claimed,
    )  # fmt: skip
    attempt = Attempt(job, jobs.types["quick"]._declaration, clock.now - held_s, 60.0)
    give(executor, attempt)
    assert await asyncio.wait_for(others.ended.get(), 30) is attempt
    await executor.close()
    assert attempt.outcome is not None
    transition = settle(job, attempt.outcome, jobs.types["quick"]._declaration.rules)
    if said is None:
        assert (transition.verb, transition.failure) == ("succeed", None)
        return
    assert transition.failure is not None
    assert (attempt.began_at, transition.verb, transition.charged) == (None, "give_up", False)
    text = f"not started before expires_at ({expires_at}): {said}"
    assert transition.failure.message == text
    rules = replace(jobs.types["quick"]._declaration.rules, drop_if_expired=True)
    dropped = settle(job, attempt.outcome, rules)
    assert (dropped.verb, dropped.status, dropped.charged) == ("drop", Status.CANCELLED, False)
    assert (dropped.reason, dropped.failure) == (f"expired: {text}", None)


@rule("M36", "M51")
@pytest.mark.parametrize("by", ["a pass", "the worker that claimed it"])
async def test_a_job_whose_time_has_passed_is_dropped_if_its_type_says_so(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    claims = by != "a pass"
    monkeypatch.setattr(Expirer, "asked_every_s", 0.05)
    if claims:
        monkeypatch.setattr(Expirer, "tick", _rest)
    jobs = rota.Jobs()

    @jobs.job("refresh", on_expired="drop", queue="served" if claims else "not served")
    async def refresh() -> None:
        raise AssertionError

    async with Hand(database, jobs, queues={"served": 1}) as hand:
        await hand.heard(WorkerStarted)
        job = value(
            connection,
            "insert into rota.job (job_type, expires_at, idempotency_key) "
            "values ('refresh', rota.clock(), 'k') returning id",
        )
        gone = await hand.heard(JobCancelled)
        assert gone.job == job and gone.reason is not None
        assert gone.reason.startswith("expired: not started before expires_at (")
        assert (gone.attempt, gone.claim) == (1, int(claims))
        assert gone.text().endswith(f": cancelled: {gone.reason}")
    assert not any(isinstance(event, JobDead) for event in hand.events)
    assert rows(
        connection,
        "select status, attempts, started_at, cancel_reason, locked_by from rota.job_history",
    ) == [("cancelled", 0, None, gone.reason, hand.name if claims else None)]
    assert rows(connection, "select from rota.attempt union all select from rota.idempotency") == []


async def _rest(_: Expirer) -> float:
    return 3600.0


class Watched:
    """An expirer by itself, pass by pass."""

    def __init__(self, database: str) -> None:
        self.bus = Bus()
        self.heard: list[Event] = []
        self.bus.on(Event, self.heard.append)
        self.link = StoreLink(Database(database), "upkeep")
        self.expirer = Expirer(self.bus, self.link, "w")

    async def a_pass(self) -> int:
        """Tick until a pass is over; how many jobs it ended."""
        before = len(self.heard)
        while await self.expirer.tick() == 0:
            pass
        return len(self.heard) - before


@rule("M14", "M36")
async def test_a_pass_begins_where_the_last_one_ended_less_a_margin_and_seldom_at_the_beginning(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(database)
    try:
        _put_late(connection, "t", 2, "1 day")
        assert await watched.a_pass() == 2, "the first looks at everything"
        _put_late(connection, "t", 3, "1 day")
        _put_late(connection, "t", 1, "30 s")
        assert await watched.a_pass() == 1, (
            "the next at what has expired since, and a minute before"
        )
        watched.expirer.reading.everything_at = 0.0
        assert await watched.a_pass() == 3, "once its time has come, at everything again"
        assert await watched.a_pass() == 0
    finally:
        await watched.link.close()


@rule("M88", "M36")
async def test_a_pass_over_many_goes_on_behind_its_last_batch(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expirer, "PORTION", 10)
    watched = Watched(database)
    asked: list[tuple[datetime, int]] = []
    original = ops.expire

    def remembered(worker: str, after: datetime, after_id: int, limit: int) -> object:
        asked.append((after, after_id))
        return original(worker, after, after_id, limit)

    monkeypatch.setattr(ops, "expire", remembered)
    try:
        _put_late(connection, "t", 25)
        assert await watched.a_pass() == 25
    finally:
        await watched.link.close()
    ids = [id_ for (id_,) in rows(connection, "select id from rota.job order by id")]
    assert [id_ for _, id_ in asked] == [0, ids[9], ids[19]]
    assert asked[0][0] == datetime(1970, 1, 1, tzinfo=UTC)
    assert all(datetime.now(UTC) - after < timedelta(minutes=5) for after, _ in asked[1:])
