"""Workers that die with their jobs, as processes that are really killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.declare.options import JobOptions
from rota.errors import DatabaseUnavailable
from rota.observe.events import Bus, JobDead, JobReaped, JobSucceeded
from rota.store.db import Database
from rota.store.drivers.own import OwnConnection
from rota.store.link import StoreLink
from rota.upkeep.reaper import Reaper
from rota.worker.gates import suspects
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import WorkerProcess, notes
from tests.worker.table import Connection, expire_leases, over, put, put_many, rows, status, value

pytestmark = pytest.mark.waits

OPEN = "select count(*) from rota.job where status <> 'dead'"


def work_until(
    start: Callable[[], WorkerProcess], done: Callable[[], bool], timeout_s: float = 180
) -> int:
    """Start a worker as often as one has died, as whatever supervises it would; how many were
    started."""
    workers = [start()]

    def looked() -> bool:
        if done():
            return True
        if workers[-1].process.poll() is not None:
            workers.append(start())
        return False

    eventually(looked, timeout_s, what="all jobs end")
    return len(workers)


def started(place: Path) -> Counter[int]:
    """How often each job's handler began."""
    return Counter(
        int(what.split()[1]) for _, what in notes(place / "notes") if what.startswith("start ")
    )


def begun(worker: WorkerProcess) -> int:
    """How many handlers a worker has begun."""
    return sum(note.startswith("start ") for note in worker.notes())


@pytest.mark.slow
@rule("M2", "M33", "M42")
@pytest.mark.parametrize("drains", [False, True], ids=["workers", "cron mode"])
def test_of_a_batch_with_a_job_that_kills_its_worker_only_that_one_ends_dead(
    database: str, connection: Connection, tmp_path: Path, drains: bool
) -> None:
    put_many(connection, "quick", 100)
    killer = put(connection, "kill")
    put_many(connection, "quick", 99)
    processes: list[WorkerProcess] = []
    options: dict[str, Any] = {"drain": True} if drains else {}

    def start() -> WorkerProcess:
        expire_leases(connection)
        processes.append(WorkerProcess(tmp_path, database, **options))
        return processes[-1]

    try:
        work_until(start, lambda: value(connection, OPEN) == 0)
    finally:
        for process in processes:
            process.kill()
    [(*dead, losses)] = rows(
        connection, "select id, status, attempts, error_type, losses from rota.job"
    )
    assert dead == [killer, "dead", 3, "LeaseExpired"]
    others = rows(
        connection, "select status, max(attempts), count(*) from rota.job_history group by 1"
    )
    assert others == [("succeeded", 1, 199)], "no neighbour was charged for it"
    counts = started(tmp_path)
    assert counts.pop(killer) == losses <= 6, "max_attempts, and while it was not alone"
    assert max(counts.values()) <= 6
    said = rows(
        connection, "select outcome from rota.attempt where job = %s order by finished_at", killer
    )
    outcomes = [outcome for (outcome,) in said]
    assert outcomes == ["queued"] * (losses - 3) + ["failed", "failed", "dead"]


@pytest.mark.slow
@rule("M33")
def test_a_job_with_one_attempt_begins_once_and_is_dead_only_if_it_had_begun(
    database: str, connection: Connection, tmp_path: Path, start_worker: StartWorker
) -> None:
    put_many(connection, "once", 300)
    put(connection, "kill")
    put_many(connection, "once", 300)

    def start() -> WorkerProcess:
        expire_leases(connection)
        return start_worker(database, concurrency=4)

    work_until(start, lambda: value(connection, OPEN) == 0)

    counts = started(tmp_path)
    ids = [id_ for (id_,) in rows(connection, "select id from rota.jobs where job_type = 'once'")]
    assert len(ids) == 600
    assert max(counts[id_] for id_ in ids) == 1, "nothing ran twice"
    dead = [id_ for (id_,) in rows(connection, "select id from rota.job where job_type = 'once'")]
    assert (
        rows(
            connection,
            "select from rota.attempt where job = any (%s) and outcome = 'dead' "
            "and started_at is null",
            dead,
        )
        == []
    ), "their start was recorded"


@rule("M33", "M80")
def test_in_cron_mode_a_killed_drain_s_jobs_are_done_by_a_later_one(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    file = tmp_path / "go"
    held = put(connection, "hold", until=str(file))
    first = WorkerProcess(tmp_path, database, drain=True)
    first.until_noted(f"start {held}")
    first.kill()
    file.touch()
    for after_the_lease in (False, True):
        if after_the_lease:
            expire_leases(connection)
        later = WorkerProcess(tmp_path, database, drain=True)
        assert later.wait(60) == 0, later.log
        assert over(connection) == after_the_lease
    assert rows(connection, "select status, attempts, losses from rota.job_history") == [
        ("succeeded", 1, 1)
    ]


# Frozen


@rule("M32", "M33", "M84")
def test_a_worker_that_was_frozen_past_its_leases_writes_nothing_and_stops_what_it_runs(
    database: str, connection: Connection, tmp_path: Path, start_worker: StartWorker
) -> None:
    file = tmp_path / "go"
    late = start_worker(database, lease="3s", concurrency=3)
    held, blocked = (
        put(connection, "hold", until=str(file)),
        put(connection, "block", until=str(file), polite=True),
    )
    for job in (held, blocked):
        late.until_noted(f"start {job}")
    late.freeze()
    try:
        expire_leases(connection)
        # Its leases are long, so that a slow machine does not cost it one.
        other = start_worker(database, concurrency=10)
        for job in (held, blocked):
            other.until_noted(f"start {job}", 30)
        before = rows(connection, "select id, claims, locked_by from rota.job order by id")
    finally:
        late.signal(signal.SIGCONT)
    eventually(lambda: late.log.count("lease lost") == 2, what="both losses are said")
    for job in (held, blocked):  # a thread that was told may hear of it only after its next step
        late.until_noted(f"cancelled {job}")
    assert rows(connection, "select id, claims, locked_by from rota.job order by id") == before, (
        "the successor still holds both"
    )
    file.touch()
    eventually(lambda: over(connection) == 2)
    assert f"end {blocked}" not in late.notes(), "the thread was told"
    assert rows(connection, "select distinct locked_by from rota.job_history") == [
        (other.name(connection),)
    ]
    assert late.log.count("ERROR") == 2, "one line for each"


@rule("M32", "M33")
def test_no_job_in_the_buffer_of_a_worker_that_was_frozen_past_its_leases_begins(
    database: str, connection: Connection, tmp_path: Path, start_worker: StartWorker
) -> None:
    late = start_worker(database, lease="2s", concurrency=2)
    put_many(connection, "nap", 2000)
    claims_ahead = "select count(*) > 4 from rota.job where status = 'running'"

    def frozen_with_a_buffer() -> bool:
        eventually(lambda: value(connection, claims_ahead))
        late.freeze()
        if value(connection, claims_ahead):
            return True
        late.signal(signal.SIGCONT)
        return False

    try:
        eventually(frozen_with_a_buffer)
        begun_before = begun(late)
        other = start_worker(database, concurrency=20)
        eventually(lambda: value(connection, "select count(*) from rota.job") == 0, 60)
        other.kill()
        last = put(connection, "nap")
    finally:
        late.signal(signal.SIGCONT)
    late.until_noted(f"start {last}")  # which had to wait its turn behind them
    late.signal(signal.SIGTERM)
    assert late.wait() == 0
    assert begun(late) == begun_before + 1, (
        "what the thawed worker had in its buffer was another's by then"
    )


# A reaper that was cut off itself


@pytest.mark.slow
@rule("M33")
async def test_a_worker_whose_own_connection_was_away_gives_the_others_time_to_come_back(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the time that it gives the others it reaps much sooner than half a lease.
    monkeypatch.setattr("rota.upkeep.reaper.Reaper.asked_every_s", 0.25)
    jobs = rota.Jobs()
    jobs.job("left behind", lease="4s")(_nothing)
    async with Hand(database, jobs, queues={"elsewhere": 1}) as hand:
        ended = (
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where datname = current_database() and application_name = 'rota claim'"
        )
        await asyncio.to_thread(eventually, lambda: rows(connection, ended) == [(True,)])
        connection.execute(
            "insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts)"
            " values ('left behind', 'running', 'gone', clock_timestamp() - interval '1 second', "
            "1, 1)"
        )
        await hand.heard(JobReaped, timeout_s=60)
        is_back = (
            "select min(backend_start) from pg_stat_activity where datname = current_database() "
            "and application_name = 'rota claim'"
        )
        assert (
            value(
                connection, f"select finished_at - ({is_back}) >= interval '2 s' from rota.attempt"
            )
            is True
        )


@rule("M33")
async def test_the_time_that_others_get_begins_when_the_connection_is_back_however_long_that_took(
    database: str, connection: Connection
) -> None:
    clock = ManualClock()

    class FarAway(StoreLink):
        async def _open(self) -> OwnConnection:
            clock.advance(0 if self._connection else 90)  # to connect takes a minute and a half
            return await super()._open()

    link = FarAway(Database(database), "reap")
    reaper = Reaper(Bus(), link, clock)
    reaper.handle_outage(DatabaseUnavailable("gone"), 0.0)
    job = put(connection, "left behind")
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'gone', "
        "locked_until = clock_timestamp() - interval '1 second'"
    )
    for is_reaped, passed_s in ((False, 0), (False, 59), (True, 2)):
        clock.advance(passed_s)
        await reaper.tick()
        assert (status(connection, job) != "running") is is_reaped
    await link.close()


def _nothing() -> None: ...


# Suspects


@pytest.mark.slow
@rule("M33", "M61")
async def test_few_suspects_begin_at_once_and_keep_no_other_job_waiting(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    survived_s = 0.4
    monkeypatch.setattr(suspects, "SURVIVED_S", survived_s)
    jobs = rota.Jobs()
    begun: list[float] = []
    go = asyncio.Event()

    @jobs.job("suspect")
    async def suspect() -> None:
        begun.append(time.monotonic())
        await go.wait()

    jobs.job("ordinary")(_nothing)
    put_many(connection, "suspect", 40)
    connection.execute("update rota.job set losses = 1, error_type = 'LeaseExpired'")
    put_many(connection, "ordinary", 200)
    # More slots than suspects, which wait in theirs for `go`.
    async with Hand(database, jobs, slots=50) as hand:
        await hand.heard(JobSucceeded, count=200, timeout_s=20)
        await asyncio.to_thread(eventually, lambda: len(begun) >= 32)
        go.set()
        await hand.heard(JobSucceeded, count=240)
    assert begun[16] - begun[15] >= survived_s, "a quarter of 64, until they have run for a while"


@rule("M33")
@pytest.mark.parametrize(("losses", "together"), [(1, 16), (2, 4), (3, 1), (4, 1)])
async def test_after_each_loss_a_quarter_as_many_suspects_begin_together(
    losses: int, together: int, database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    running: list[int] = []
    most: list[int] = []

    @jobs.job("suspect", takes_context=True)
    async def suspect(ctx: rota.Context) -> None:
        running.append(ctx.job.id)
        most.append(len(running))
        await asyncio.sleep(0.02)
        running.remove(ctx.job.id)

    put_many(connection, "suspect", 20)
    connection.execute("update rota.job set losses = %s, error_type = 'LeaseExpired'", [losses])
    async with Hand(database, jobs, slots=20) as hand:
        await hand.heard(JobSucceeded, count=20, timeout_s=20)
    assert max(most) == together


@rule("M33")
@pytest.mark.parametrize(
    ("count", "options", "recorded"),
    [
        (3, {}, None),
        (1, {}, True),
        (3, {"max_attempts": 1}, True),
        (3, {"on_lost": "dead"}, True),
    ],
    ids=["together", "by itself", "one attempt", "begins once"],
)
async def test_who_is_charged_for_the_next_loss_begins_alone(
    count: int,
    options: JobOptions,
    recorded: bool | None,
    database: str,
    connection: Connection,
) -> None:
    jobs = rota.Jobs()
    begun = asyncio.Event()
    go = asyncio.Event()

    @jobs.job("suspect", **options)
    async def suspect() -> None:
        begun.set()
        await go.wait()

    put_many(connection, "suspect", count)
    connection.execute("update rota.job set losses = 1, error_type = 'LeaseExpired'")
    async with Hand(database, jobs, slots=20) as hand:
        await begun.wait()
        running = rows(
            connection,
            "select start_recorded from rota.job where status = 'running' "
            "and start_recorded is not false",
        )
        go.set()
        await hand.heard(JobSucceeded, count=count)
    assert running == [(recorded,)] * (1 if recorded else count)


@pytest.mark.slow
@rule("M33", "M42", "M61")
def test_a_key_function_that_kills_its_worker_ends_its_job_and_no_other(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    ids = [put(connection, "keyed", name=name) for name in ("a", "b", "poison", "c", "d")]
    processes: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        expire_leases(connection)
        module = "tests.worker.limit_app"
        processes.append(WorkerProcess(tmp_path, database, drain=True, module=module))
        return processes[-1]

    try:
        work_until(start, lambda: value(connection, OPEN) == 0)
    finally:
        for process in processes:
            process.kill()
    assert rows(connection, "select payload ->> 'name', status, attempts from rota.job") == [
        ("poison", "dead", 3)
    ]
    done = "select status, max(attempts), count(*) from rota.job_history group by 1"
    assert rows(connection, done) == [("succeeded", 1, 4)]
    assert value(connection, "select count(*) from rota.attempt where job = %s", ids[2]) == 6


@rule("M33", "M61")
@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("option", ["rate_limit", "cost", "breaker"])
async def test_a_key_function_that_raises_anything_ends_its_own_job_and_no_worker(
    option: str, error: BaseException, database: str, connection: Connection
) -> None:
    def find_key(name: str) -> Any:
        if name == "poison":
            raise error
        return 1 if option == "cost" else name

    asks: dict[str, JobOptions] = {
        "rate_limit": {"rate_limit": rota.RateLimit("names", 1_000, per="1s", key=find_key)},
        "cost": {"rate_limit": rota.RateLimit("all", 1_000, per="1s", cost=find_key)},
        "breaker": {"breaker": rota.Breaker("names", failures=3, key=find_key)},
    }
    jobs = rota.Jobs()

    @jobs.job("keyed", **asks[option])
    async def keyed(name: str) -> None: ...

    poison = put(connection, "keyed", name="poison")
    async with Hand(database, jobs) as hand:
        put(connection, "keyed", name="good")
        await hand.heard(JobSucceeded)
        await hand.heard(JobDead)
    assert status(connection, poison) == "dead"
    message = str(value(connection, "select message from rota.attempt where job = %s", poison))
    assert f"raised {type(error).__name__}" in message
    assert "test_lost_workers.py" in message, "it says which function"


@rule("M33", "M83")
async def test_jobs_that_were_interrupted_by_deploys_are_no_suspects(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Within the time of this test suspects would not start together.
    monkeypatch.setattr(suspects, "SURVIVED_S", 60.0)
    jobs = rota.Jobs()
    begun: list[int] = []
    go = asyncio.Event()

    @jobs.job("long", takes_context=True)
    async def long(ctx: rota.Context) -> None:
        begun.append(ctx.job.id)
        await go.wait()

    put_many(connection, "long", 4)
    for deploy in (1, 2):
        async with Hand(database, jobs, slots=5, grace_s=0.0):
            await asyncio.to_thread(eventually, lambda deploy=deploy: len(begun) == 4 * deploy)
        connection.execute("update rota.job set run_at = rota.clock()")
    assert rows(connection, "select distinct losses, attempts from rota.job") == [(2, 1)]
    async with Hand(database, jobs, slots=5) as hand:
        await asyncio.to_thread(eventually, lambda: len(begun) == 12)
        go.set()
        await hand.heard(JobSucceeded, count=4)


@rule("M2", "M33")
async def test_a_reaper_that_gets_no_connection_of_its_own_reaps_over_one_that_is_open(
    database: str, connection: Connection
) -> None:
    job = put(connection, "left behind")
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'gone', claims = 1, "
        "locked_until = now() - interval '1 s'"
    )
    nowhere = Database("postgresql://127.0.0.1:1/none")
    open_link = StoreLink(Database(database), "upkeep")
    reaper = Reaper(Bus(), StoreLink(nowhere, "reap"), spare=open_link)
    reaping = asyncio.create_task(reaper.run())
    await asyncio.to_thread(eventually, lambda: status(connection, job) != "running")
    reaper.stop()
    await reaping
    await open_link.close()
