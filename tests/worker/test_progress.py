"""What handlers say of how far they have come is seen while they run, written seldom, and only by
who holds the job."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.observe.events import JobCancelled, JobFailed, JobSucceeded, LeaseLost
from rota.worker import lease_keeper
from rota.worker.processes.handler_process import HandlerProcess
from rota.worker.processes.messages import Progressed
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker import heavy
from tests.worker.hand import Hand
from tests.worker.keeper import KeptByHand
from tests.worker.table import Connection, put, put_many, rows, value

pytestmark = pytest.mark.waits

SEEN = "select progress - 'at' from rota.jobs"
WRITES = """
create table public.written (at timestamptz not null default clock_timestamp(), done int);
create function public.note_progress() returns trigger language plpgsql as $$
begin
  insert into public.written (done) values ((new.progress ->> 'done')::int);
  return null;
end $$;
create trigger note_progress after update on rota.job
for each row when (new.progress is distinct from old.progress)
execute function public.note_progress();
"""


def say(done: float, total: float | None = None, note: str | None = None) -> None:
    """Say it somewhere below the handler."""
    rota.context().progress(done, total, note)


@rule("M72")
@pytest.mark.parametrize("handler", ["async", "plain"])
async def test_progress_is_seen_while_the_handler_runs(
    database: str, connection: Connection, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_S", 3600.0)
    jobs = rota.Jobs()
    go = threading.Event()

    @jobs.job("async")
    async def steps() -> None:
        say(1, 3, "first\nof all")
        await asyncio.to_thread(go.wait, 60)
        say(2, 3)
        await asyncio.Event().wait()

    @jobs.job("plain")
    def steps_in_a_thread() -> None:
        say(1, 3, "first\nof all")
        go.wait(60)
        say(2, 3)
        while rota.context().cancelled is None:
            time.sleep(0.01)

    # Without NOTIFY nothing else wakes the lease keeper, and with such a lease it sleeps for ten
    # minutes.
    async with Hand(database, jobs, notify=False, lease_s=7200, grace_s=0.0) as hand:
        job = put(connection, handler)
        await asyncio.to_thread(
            eventually,
            lambda: value(connection, SEEN) == {"done": 1, "total": 3, "note": "first of all"},
        )
        go.set()
        await asyncio.to_thread(
            eventually, lambda: value(connection, SEEN) == {"done": 2, "total": 3, "note": None}
        )
        assert value(connection, "select status from rota.jobs where id = %s", job) == "running"
    assert value(connection, SEEN) == {"done": 2, "total": 3, "note": None}, (
        "it stays until another attempt says something"
    )
    assert hand.report is not None


@rule("M72")
async def test_it_is_written_once_a_second_at_most_and_the_latest_is_not_lost(
    database: str, connection: Connection
) -> None:
    connection.execute(WRITES.encode())
    jobs = rota.Jobs()
    enough = threading.Event()
    began_at: list[float] = []

    @jobs.job("busy", takes_context=True)
    def busy(ctx: rota.Context) -> None:
        began_at.append(time.monotonic())
        said = 0
        while not enough.is_set():
            said += 1
            ctx.progress(said)
        ctx.progress(1_000_000_000)
        while ctx.cancelled is None:
            time.sleep(0.01)

    async with Hand(database, jobs, grace_s=0.0):
        put(connection, "busy")
        await asyncio.to_thread(
            eventually, lambda: value(connection, "select count(*) >= 3 from written")
        )
        enough.set()
        await asyncio.to_thread(
            eventually,
            lambda: value(connection, SEEN) == {"done": 1_000_000_000, "total": None, "note": None},
        )
        written = value(connection, "select count(*) from written")
        took_s = time.monotonic() - began_at[0]
    assert isinstance(written, int) and written - 1 <= took_s / lease_keeper.PROGRESS_S, took_s


@rule("M72")
async def test_many_jobs_share_one_statement_a_second(
    database: str, connection: Connection
) -> None:
    connection.execute(WRITES.encode())
    connection.execute("alter table written add transaction xid8 default pg_current_xact_id()")
    jobs = rota.Jobs()
    count = 40
    met = threading.Barrier(count)

    @jobs.job("one")
    def one() -> None:
        met.wait(60)
        say(1)
        while rota.context().cancelled is None:
            time.sleep(0.01)

    async with Hand(database, jobs, slots=count, urgent_slots=0, grace_s=0.0):
        connection.execute(
            "insert into rota.job (job_type) select 'one' from generate_series(1, %s)", [count]
        )
        await asyncio.to_thread(
            eventually, lambda: value(connection, "select count(*) from written") == count
        )
    # Each says it in its own time: those that are late are another statement's, a second later.
    assert value(connection, "select count(distinct transaction) <= 10 from written") is True


@rule("M32")
async def test_a_worker_that_lost_the_job_hears_of_it_when_it_writes_and_writes_nothing(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    told: list[str] = []

    @jobs.job("steps", takes_context=True)
    def steps(ctx: rota.Context) -> None:
        done = 0
        try:
            while True:
                ctx.raise_if_cancelled()
                done += 1
                ctx.progress(done)
                time.sleep(0.01)
        except rota.AttemptCancelled as error:
            told.append(error.reason)
            raise

    async with Hand(database, jobs, notify=False, lease_s=7200) as hand:
        job = put(connection, "steps")
        await asyncio.to_thread(
            eventually, lambda: value(connection, "select progress is not null from rota.jobs")
        )
        connection.execute(
            "update rota.job set claims = claims + 1, status = 'failed', locked_by = null, "
            "locked_until = null, run_at = now() + interval '1 h', "
            "progress = null"
        )
        await hand.heard(LeaseLost)  # the next renewal is 40 minutes away
        # Nothing waits for the handler.
        await asyncio.to_thread(eventually, lambda: told, what="its thread has been told")
    assert told == ["its lease was lost"]
    assert rows(connection, "select id, status, progress from rota.jobs") == [(job, "failed", None)]


@rule("M72")
@pytest.mark.parametrize("how", ["async", "plain", "fails", "completes", "process"])
async def test_the_last_report_is_written_with_the_outcome(
    database: str, connection: Connection, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lease_keeper, "PROGRESS_S", 3600.0)  # the first report only
    jobs = rota.Jobs()
    go = tmp_path / "go"

    async def aend(ctx: rota.Context, go: str) -> None:
        await asyncio.to_thread(end, ctx, go)

    def end(ctx: rota.Context, go: str) -> None:
        ctx.progress(7, 10)
        eventually(lambda: Path(go).exists())
        ctx.progress(10, 10)
        if how == "fails":
            raise ValueError
        if how == "completes":
            with ctx.transaction():
                pass

    jobs.job(how, takes_context=True)(aend if how == "async" else end)
    async with Hand(database, heavy.jobs if how == "process" else jobs) as hand:
        put(connection, "reports its end" if how == "process" else how, go=str(go))
        await asyncio.to_thread(
            eventually,
            lambda: value(connection, SEEN) == {"done": 7, "total": 10, "note": None},
            60,
        )
        go.touch()
        await hand.heard(JobFailed if how == "fails" else JobSucceeded)
    assert value(connection, SEEN) == {"done": 10, "total": 10, "note": None}


@rule("M72")
async def test_a_report_that_the_database_refuses_keeps_no_outcome_from_being_written(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("alter table rota.job add check ((progress ->> 'done')::numeric <> 13)")
    monkeypatch.setattr(lease_keeper.LeaseKeeper, "note_progress", lambda *_: None)
    jobs = rota.Jobs()

    @jobs.job("steps", takes_context=True)
    def steps(ctx: rota.Context) -> None:
        ctx.progress(12 + ctx.job.id % 2)

    put_many(connection, "steps", 2)
    await Hand(database, jobs, drain=True).run()
    told = rows(connection, "select status, (progress ->> 'done')::int from rota.jobs order by 2")
    assert told == [("succeeded", 12), ("succeeded", None)]


@rule("M32")
async def test_progress_of_a_locked_row_is_written_later(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go, said = threading.Event(), threading.Event()

    @jobs.job("steps", takes_context=True)
    def steps(ctx: rota.Context) -> None:
        go.wait(60)
        ctx.progress(1)
        said.set()
        while ctx.cancelled is None:
            time.sleep(0.01)

    async with Hand(database, jobs, grace_s=0.0):
        put(connection, "steps")
        await asyncio.to_thread(
            eventually, lambda: value(connection, "select status from rota.jobs") == "running"
        )
        with psycopg.connect(database) as other:
            other.execute("select from rota.job for update")
            go.set()
            asked = (
                "select count(*) > 0 from pg_stat_activity where datname = current_database() "
                "and application_name = 'rota lease'"
                " and query like '%%job_progress%%'"
            )
            await asyncio.to_thread(
                eventually, lambda: value(connection, asked), what="it was tried"
            )
        await asyncio.to_thread(eventually, lambda: value(connection, SEEN) is not None)
    assert said.is_set()


@rule("M72")
async def test_a_job_that_says_nothing_costs_no_statement(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    jobs.job("silent")(lambda: None)
    async with Hand(database, jobs) as hand:
        put(connection, "silent")
        await hand.heard(JobSucceeded)
        own = (
            "select query from pg_stat_activity where application_name = 'rota lease' "
            "and datname = current_database()"
        )
        asked = [query for (query,) in rows(connection, own)]
    assert not any("job_progress" in query for query in asked)


@rule("M13", "M72")
async def test_the_last_that_was_written_goes_to_history(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    seen = threading.Event()

    @jobs.job("steps", max_attempts=2, retry=rota.Fixed("1s", jitter=0), takes_context=True)
    def steps(ctx: rota.Context) -> None:
        if ctx.job.attempts == 1:
            ctx.progress(1, 2)
            seen.wait(60)
            raise OSError

    async with Hand(database, jobs) as hand:
        put(connection, "steps")
        await asyncio.to_thread(
            eventually, lambda: value(connection, SEEN) == {"done": 1, "total": 2, "note": None}
        )
        seen.set()
        await hand.heard(JobFailed)
        await hand.heard(JobSucceeded)
    assert value(connection, SEEN) == {"done": 1, "total": 2, "note": None}


@rule("M72")
async def test_what_was_said_while_the_database_was_away_is_written_when_it_is_back(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "PROGRESS_S", 0.0)
    kept = KeptByHand(database, connection)
    context = kept.hold()
    await kept.keeper.tick()
    context.progress(1)
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
        "and application_name = 'rota lease'"
    )
    with pytest.raises(rota.DatabaseUnavailable):
        await kept.keeper.tick()
    assert value(connection, SEEN) is None
    await kept.keeper.tick()
    await kept.keeper.close()
    assert value(connection, SEEN) == {"done": 1, "total": None, "note": None}


class Reports:
    """Stands for a context, and for a channel of which the first message waits for the second."""

    id = claims = 1
    _progress = "5 of 10"

    def __init__(self) -> None:
        self.job, self.sent = self, list[str]()
        self.began, self.passed = threading.Event(), threading.Event()

    def encode_progress(self) -> str:
        """Of the context."""
        return self._progress

    def send(self, message: Progressed) -> None:
        """Of the channel."""
        if not self.began.is_set():
            self.began.set()
            self.passed.wait(0.5)  # in vain: the second may not be sent before
        self.sent.append(message.progress_json)
        self.passed.set()


@rule("M72")
def test_no_thread_of_a_handlers_process_sends_an_older_report_last() -> None:
    process: Any = object.__new__(HandlerProcess)
    reports: Any = Reports()
    process._channel, process._telling = reports, threading.Lock()
    first = threading.Thread(target=process._tell_progress, args=[reports])
    first.start()
    reports.began.wait(30)
    reports._progress = "10 of 10"
    process._tell_progress(reports)
    first.join()
    assert reports.sent == ["5 of 10", "10 of 10"]


@rule("M72", "M87")
async def test_a_handler_in_a_process_of_its_own_reports_progress_and_is_stopped(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with Hand(database, heavy.jobs) as hand:
        job = put(connection, "reports progress", go=str(go))
        await asyncio.to_thread(
            eventually,
            lambda: value(connection, SEEN) == {"done": 9_999, "total": None, "note": "loading"},
            60,
        )
        go.touch()
        await asyncio.to_thread(
            eventually,
            lambda: value(connection, SEEN) == {"done": 10_000, "total": 20_000, "note": None},
        )
        connection.execute("select rota.job_cancel(array[%s::bigint], 'enough')", [job])
        assert (await hand.heard(JobCancelled)).reason == "enough"
    assert value(connection, "select status from rota.jobs") == "cancelled"


@rule("M72", "M87")
async def test_an_async_handler_in_a_process_of_its_own_is_cancelled_where_it_awaits(
    database: str, connection: Connection
) -> None:
    async with Hand(database, heavy.jobs) as hand:
        job = put(connection, "awaits")
        await asyncio.to_thread(
            eventually, lambda: value(connection, SEEN) == {"done": 1, "total": 2, "note": None}, 60
        )
        connection.execute("select rota.job_cancel(array[%s::bigint], 'enough')", [job])
        await hand.heard(JobCancelled)
    assert value(connection, "select status from rota.jobs") == "cancelled"
