"""What the database will not take: one row's trouble is that row's, and the whole server's is
waited out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

import rota
from rota.errors import DatabaseUnavailable
from rota.observe.events import (
    Bus,
    DatabaseLost,
    Event,
    JobSucceeded,
    OutcomeRefused,
    UpkeepRefused,
)
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.reaper import Reaper
from rota.worker.claimer import Claimer
from rota.worker.lease_keeper import LeaseKeeper
from tests.store.work import FAIL, SUCCEED, insert
from tests.store.work import Hand as StoreHand
from tests.support.rules import rule
from tests.support.wait import aeventually, count_lock_waits
from tests.worker.hand import Hand
from tests.worker.table import Connection, connected, over, put, put_many, rows, status, value

JOBS = 20
LEASE_S = 20
REFUSED = "select refused from rota.worker where stopped_at is null"
RENEWED_S = 2 / 3
"""Leases are renewed as often as those of two seconds are; but no machine is so busy that one runs
out."""


@pytest.fixture(autouse=True)
def renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.worker.lease_keeper.RENEWALS_A_LEASE", LEASE_S / RENEWED_S)


@pytest.fixture
def other(database: str) -> Iterator[Connection]:
    """Another connection, in a transaction as soon as it is used."""
    with psycopg.connect(database) as connection:
        yield connection


def _jobs(go: asyncio.Event | None = None, *, lease_s: float = LEASE_S) -> rota.Jobs:
    jobs = rota.Jobs()

    @jobs.job("work", lease=f"{lease_s}s", max_attempts=2, retry=rota.Fixed("1s", jitter=0))
    async def work() -> None:
        if go is not None:
            await go.wait()
            rota.context().progress(1)

    @jobs.job("fail", lease=f"{lease_s}s", retry=rota.Fixed("1h"))
    async def fail() -> None:
        await work.func()
        raise ValueError("no")

    return jobs


def _refuse(
    connection: Connection, table: str, what: str, *, raises: str = "raise exception 'not this one'"
) -> None:
    """A trigger of the user's that will not have some rows, from now on."""
    connection.execute(
        "create or replace function refuse() returns trigger language plpgsql as $$ "
        f"begin if {what} then {raises}; end if; return new; end $$".encode()
    )
    connection.execute(
        f"create or replace trigger refuse before insert or update on rota.{table} for each row "
        "execute function refuse()".encode()
    )


def _allow(connection: Connection) -> None:
    """Make the trigger refuse nothing. To drop it would lock tables in another order than the
    workers that write to them."""
    connection.execute(
        "create or replace function refuse() returns trigger language plpgsql as $$ "
        "begin return new; end $$"
    )


@rule("M2")
def test_whatever_a_trigger_raises_for_one_job_the_others_of_its_batch_end(
    connection: Connection,
) -> None:
    hand = StoreHand(connection)
    for table, transition, write in (
        ("job_history", SUCCEED, ops.finish),
        ("attempt", FAIL, ops.leave),
    ):
        column = "id" if table == "job_history" else "job"
        for state in ("raise_exception", "undefined_table", "insufficient_privilege"):
            _allow(connection)
            insert(connection, 4)
            jobs = hand.claim().jobs
            bad = jobs[1]
            raises = f"raise {state} using message = 'not this one'"
            _refuse(connection, table, f"new.{column} = {bad.id}", raises=raises)
            endings = [ops.Ending(job, transition, 0.5) for job in jobs]
            settled = hand.run(write(endings, "1"))
            refused = settled.pop(bad.id)
            assert isinstance(refused, ops.Refused) and "not this one" in refused.why, state
            assert settled.keys() == {job.id for job in jobs if job is not bad}, state
            assert all(isinstance(end, ops.Written) for end in settled.values()), state
            _allow(connection)
            again = hand.run(write([ops.Ending(bad, transition, 0.5)], "1"))
            assert isinstance(again[bad.id], ops.Written), state
        connection.execute(f"drop trigger refuse on rota.{table}".encode())


@rule("M2", "M84")
async def test_a_row_that_is_refused_does_not_stop_its_batch_and_is_tried_again(
    database: str, connection: Connection
) -> None:
    go = asyncio.Event()
    put_many(connection, "work", JOBS)
    bad = put(connection, "work")
    _refuse(connection, "job_history", f"new.id = {bad}")
    async with Hand(database, _jobs(go), slots=JOBS + 1, urgent_slots=0) as hand:
        await aeventually(lambda: _running(connection) == JOBS + 1)
        go.set()
        refused = await hand.heard(OutcomeRefused)
        assert refused.job == bad and "not this one" in refused.reason
        await aeventually(lambda: _running(connection) == 1)
        # Its lease is kept while it is tried again: it is not run a second time because a trigger
        # was in the way.
        lease = "select locked_until from rota.job"
        before = value(connection, lease)
        await aeventually(lambda: value(connection, lease) != before)
        _allow(connection)
        await aeventually(lambda: _running(connection) == 0)
    assert len([event for event in hand.events if isinstance(event, OutcomeRefused)]) == 1
    assert rows(connection, "select distinct attempts from rota.jobs") == [(1,)]


@rule("M83")
async def test_a_worker_on_its_way_out_waits_for_what_is_being_written(
    database: str, connection: Connection, other: Connection
) -> None:
    jobs = rota.Jobs()
    started, go = asyncio.Event(), asyncio.Event()

    @jobs.job("work")
    async def work() -> None:
        started.set()
        await go.wait()

    job = put(connection, "work")
    async with Hand(database, jobs, grace_s=60.0) as hand:
        await asyncio.wait_for(started.wait(), 30)
        hand.worker.stop()
        await aeventually(lambda: not connected(connection, "claim"))
        other.execute("select from rota.job where id = %s for update", [job])
        go.set()
        waits = (
            "select count(*) = 1 from pg_stat_activity where pid = any (%s) "
            "and wait_event_type = 'Lock'"
        )
        await aeventually(lambda: value(connection, waits, connected(connection, "finish")))
        for _ in range(100):  # turns of the loop: a worker that waits for nothing is gone by then
            await asyncio.sleep(0)
        other.rollback()
    assert status(connection, job) == "succeeded"


@rule("M72")
@pytest.mark.parametrize("is_locked", [True, False], ids=["row", "earlier report"])
async def test_the_last_report_of_progress_waits_with_the_outcome(
    database: str,
    connection: Connection,
    other: Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_locked: bool,
) -> None:
    def note(_: LeaseKeeper, context: rota.Context) -> None:
        context._is_being_stored = not is_locked

    monkeypatch.setattr(LeaseKeeper, "note_progress", note)
    go = asyncio.Event()
    job = put(connection, "work")
    async with Hand(database, _jobs(go)) as hand:
        await aeventually(lambda: job in hand.worker.attempts)
        attempt = hand.worker.attempts[job]
        if is_locked:
            other.execute("select from rota.job where id = %s for update", [job])
        go.set()
        await aeventually(lambda: hand.is_refused(attempt) or count_lock_waits(connection))
        other.rollback()
    assert value(connection, "select progress -> 'done' from rota.job_history") == 1


@rule("M2", "M33")
async def test_a_row_that_is_refused_for_ever_is_left_to_the_reaper(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.finisher.TRY_FOR_S", 0.5)
    monkeypatch.setattr("rota.worker.lease_keeper.RENEWALS_A_LEASE", 3)
    # Only the test reaps, and only the refused job.
    monkeypatch.setattr(Reaper, "asked_every_s", 3600.0)
    async with Hand(database, _jobs(lease_s=1)) as hand:
        reaper = hand.part(Reaper)
        await aeventually(lambda: reaper.reading.everything_at > 0)
        bad = put(connection, "work")
        _refuse(connection, "job_history", f"new.id = {bad}")
        for start in (1, 2, 3):
            await hand.heard(OutcomeRefused, start)
            await aeventually(
                lambda: rows(connection, "select id from rota.job_reap('-infinity', 10)")
            )
    assert status(connection, bad) == "dead"
    refused = [event.claim for event in hand.events if isinstance(event, OutcomeRefused)]
    assert len(refused) == len(set(refused)) == 3, "once for each start; the first loss is free"


@rule("M2", "M30")
@pytest.mark.parametrize("notify", [True, False], ids=["lock_timeout", "behind a pooler"])
async def test_a_locked_row_does_not_stop_its_batch(
    database: str,
    connection: Connection,
    other: Connection,
    monkeypatch: pytest.MonkeyPatch,
    notify: bool,
) -> None:
    monkeypatch.setattr("rota.worker.worker.UNTIMED_S", 1.0)
    monkeypatch.setattr("rota.worker.worker.LOCK_TIMEOUT_S", 1 / 3)
    go = asyncio.Event()
    put_many(connection, "work", JOBS)
    put_many(connection, "fail", JOBS)
    async with Hand(database, _jobs(go), slots=2 * JOBS, urgent_slots=0, notify=notify) as hand:
        await aeventually(lambda: _running(connection) == 2 * JOBS)
        locked = [
            job
            for (job,) in rows(
                other, "select id from rota.job where id %% %s = 0 order by id for update", JOBS
            )
        ]
        go.set()
        await aeventually(lambda: _running(connection) == len(locked) == 2)
        # From here on these two are known, and nothing waits for them: with each wait the ends of
        # others would wait as well.
        await aeventually(
            lambda: all(hand.is_refused(attempt) for attempt in list(hand.worker.attempts.values()))
        )
        waits = (
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and wait_event in ('transactionid', 'tuple')"
        )
        for _ in range(20):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(value, connection, waits) == 0
        other.rollback()
        await aeventually(lambda: _running(connection) == 0)
    ended = "select status, attempts, count(*) from rota.jobs group by 1, 2"
    assert {*rows(connection, ended)} == {("failed", 1, JOBS), ("succeeded", 1, JOBS)}
    assert (
        value(connection, "select count(*) from rota.attempt where error_type = 'LeaseExpired'")
        == 0
    )


@rule("M2", "M34")
async def test_a_handler_that_leaks_its_transaction_keeps_only_itself_waiting(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.worker.LOCK_TIMEOUT_S", 1 / 3)
    leaked: list[Connection] = []
    jobs = _jobs()

    @jobs.job("leak")
    def leak() -> None:
        own = psycopg.connect(database)
        own.execute("set default_transaction_isolation = 'repeatable read'")
        own.execute("select count(*) from rota.jobs")
        own.execute("update rota.job set meta = '{}' where id = %s", [rota.context().job.id])
        leaked.append(own)

    put_many(connection, "work", JOBS)
    job = put(connection, "leak")
    put_many(connection, "work", JOBS)
    async with Hand(database, jobs) as hand:
        await aeventually(lambda: leaked)  # no event says so
        await aeventually(lambda: over(connection) == 2 * JOBS)
        put_many(connection, "work", 20 * JOBS)
        await aeventually(lambda: over(connection) == 22 * JOBS)
        assert status(connection, job) == "running"
        leaked[0].commit()
        leaked[0].close()
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]


@rule("M2")
async def test_a_worker_that_cannot_write_stops_claiming_before_it_has_run_everything(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.claimer.UNWRITTEN_MAX", 10)
    put_many(connection, "work", 40 * JOBS)
    _refuse(connection, "job_history", "true", raises="raise check_violation using message = 'no'")
    async with Hand(database, _jobs(), slots=20, poll_s=0.05) as hand:
        await hand.heard(OutcomeRefused)
        claimer = hand.part(Claimer)
        turns = _turns(claimer)
        await aeventually(lambda: len([None for unwritten, _ in turns if unwritten >= 10]) >= 10)
        # There were free slots each time.
        claimed = {claimed for unwritten, claimed in turns if unwritten >= 10}
        assert len(claimed) == 1 and claimed.pop() < 20 * JOBS
        _allow(connection)
        await aeventually(lambda: over(connection) == 40 * JOBS)


@rule("M2")
async def test_the_worker_outlives_any_failure_of_one_of_its_statements(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim, its renewal, its reaping and its heartbeat are refused, one after the other."""
    monkeypatch.setattr("rota.worker.claimer.QUARANTINE_S", (0.2, 1.0))
    monkeypatch.setattr("rota.worker.lease_keeper.HEARTBEAT_S", 0.2)
    go = asyncio.Event()
    held = put(connection, "work")
    async with Hand(database, _jobs(go), slots=5) as hand:
        await aeventually(lambda: status(connection, held) == "running")

        async def is_refused(kind: type[Event], table: str, what: str, text: str) -> None:
            begun = len(hand.events)
            raises = f"raise exception 'not this {text}'"
            _refuse(connection, table, what, raises=raises)
            await hand.until(
                lambda: any(
                    isinstance(event, kind) and f"not this {text}" in str(event)
                    for event in hand.events[begun:]
                ),
                60,
            )
            _allow(connection)

        renews = "new.status = 'running' and old.status = 'running'"
        await is_refused(DatabaseLost, "job", renews, "renewal")
        await is_refused(DatabaseLost, "worker", "true", "heartbeat")
        connection.execute("drop trigger refuse on rota.worker")
        connection.execute(
            "insert into rota.job (job_type, queue, status, claims, attempts, locked_by, "
            "locked_until)"
            " values ('work', 'elsewhere', 'running', 1, 1, 'gone', now() - interval '1 minute')"
        )
        await is_refused(UpkeepRefused, "job", "new.error_type = 'LeaseExpired'", "reap")
        late = put(connection, "work")
        claims = f"new.id = {late} and new.status = 'running'"
        await is_refused(UpkeepRefused, "job", claims, "claim")
        go.set()
        for job in (held, late):
            await hand.heard(JobSucceeded, job=job)


@rule("M2", "M80")
async def test_a_job_that_cannot_be_claimed_is_logged_and_keeps_no_drain_from_what_is_behind_it(
    database: str, connection: Connection
) -> None:
    bad = [put(connection, "work"), put(connection, "work")]
    _refuse(connection, "job", f"new.id = any ('{{{bad[0]},{bad[1]}}}') and new.status = 'running'")
    put_many(connection, "work", JOBS)
    hand = Hand(database, _jobs(), drain=True, slots=1)
    report = await hand.run()
    assert (report.claimed, report.succeeded) == (JOBS, JOBS)
    assert report.oldest_due == value(connection, "select min(run_at) from rota.job")
    assert [event.job for event in hand.events if isinstance(event, UpkeepRefused)] == bad
    assert (
        rows(connection, "select status, attempts, claims from rota.job") == [("queued", 0, 0)] * 2
    )


@rule("M2", "M31")
async def test_a_refused_pass_gives_no_worker_time_as_if_the_database_had_been_away(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, status, claims, attempts, locked_by, locked_until)"
        " values ('work', 'running', 1, 1, 'gone', now() - interval '1 minute')"
    )
    # Refused whichever jobs it would take: no row is at fault.
    connection.execute("alter function rota.wait_briefly(bigint[]) rename to out_of_reach")
    link = StoreLink(Database(database), "upkeep")
    reaper = Reaper(Bus(), link)
    try:
        with pytest.raises(DatabaseUnavailable) as refused:
            await reaper.tick()
        reaper.handle_outage(refused.value, 0.1)
        connection.execute("alter function rota.out_of_reach(bigint[]) rename to wait_briefly")
        await reaper.tick()
        assert value(connection, "select status from rota.job") == "queued"
    finally:
        await link.close()


def _turns(claimer: Claimer) -> list[tuple[int, int]]:
    """Grows with each of its turns: how many ends were not written when it began, and how many jobs
    claimed."""
    turns: list[tuple[int, int]] = []
    tick = claimer.tick

    async def counted() -> float | None:
        turns.append((claimer._finisher.unwritten, claimer.claimed))
        return await tick()

    claimer.tick = counted  # type: ignore[method-assign]
    return turns


def _running(connection: Connection) -> int:
    return int(str(value(connection, "select count(*) from rota.job where status = 'running'")))


def _renewed(connection: Connection) -> bool:
    """Whether leases have been renewed since their claim, all of them, and none has expired."""
    renewed = (
        f"locked_until > started_at + interval '{LEASE_S + 0.2} s' "
        "and locked_until > clock_timestamp()"
    )
    query = f"select bool_and({renewed}) from rota.job where status = 'running'"
    return value(connection, query) is True
