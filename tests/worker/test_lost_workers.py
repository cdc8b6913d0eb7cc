"""Workers that die with their jobs, as processes that are really killed."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.model.outcome import Interrupted
from rota.model.settle import settle
from rota.observe.events import Bus, JobSucceeded
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.reaper import Reaper
from rota.worker import suspects
from rota.worker.attempt import Attempt
from rota.worker.suspects import Suspects
from tests.store.work import Hand as StoreHand
from tests.store.work import insert
from tests.support.clock import ManualClock
from tests.support.job import make_job
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import WorkerProcess, notes
from tests.worker.table import Connection, expire_leases, over, put, put_many, rows, status, value

OPEN = "select count(*) from rota.job where status <> 'dead'"


def work_until(
    start: Callable[[], WorkerProcess], done: Callable[[], bool], timeout_s: float = 60
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


@pytest.mark.nightly
@rule("M33")
def test_a_job_with_one_attempt_begins_once_and_is_dead_only_if_it_had_begun(
    database: str, connection: Connection, tmp_path: Path, start_worker: StartWorker
) -> None:
    put_many(connection, "once", 100)
    put(connection, "kill")
    put_many(connection, "once", 100)

    def start() -> WorkerProcess:
        expire_leases(connection)
        return start_worker(database, concurrency=4)

    work_until(start, lambda: value(connection, OPEN) == 0)

    counts = started(tmp_path)
    ids = [id_ for (id_,) in rows(connection, "select id from rota.jobs where job_type = 'once'")]
    assert len(ids) == 200
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


# A reaper that was cut off itself


def _nothing() -> None: ...


# Suspects


def suspects_of(losses: int, count: int, **options: Any) -> list[Attempt]:
    """Claimed jobs that were lost so often."""
    jobs = rota.Jobs()
    job_type = jobs.job("t", **options)(_nothing)
    return [
        Attempt(make_job(id=id_, losses=losses), job_type._declaration, 0.0, 60.0, is_suspect=True)
        for id_ in range(count)
    ]


def begin(known: Suspects, batch: list[Attempt]) -> list[Attempt]:
    """Those whose turn it is."""
    answers = known.ask(batch)
    return [attempt for attempt in batch if attempt not in answers]


@rule("M33")
def test_after_each_loss_a_quarter_as_many_suspects_begin_together() -> None:
    for losses, together in ((1, 16), (2, 4), (3, 1), (4, 1)):
        clock = ManualClock()
        known, batch = Suspects(clock, 60.0), suspects_of(losses, 2 * together + 2)
        first = begin(known, batch)
        assert first == batch[:together], losses
        waiting = batch[together:]
        assert begin(known, waiting) == [], "the first have not begun"
        for attempt in first:
            attempt.began_at = clock.monotonic()
        survived_s = min(suspects.SURVIVED_S * 4 ** (losses - 1), suspects.SURVIVED_S_MAX)
        clock.advance(0.99 * survived_s)
        assert begin(known, waiting) == [], losses
        clock.advance(0.02 * survived_s)
        assert begin(known, waiting) == waiting[:together], losses


@rule("M33")
def test_who_is_charged_for_the_next_loss_begins_alone() -> None:
    cases: tuple[tuple[int, dict[str, Any], list[bool]], ...] = (
        (3, {}, [True, True, True]),
        (1, {}, [False]),
        (3, {"max_attempts": 1}, [False]),
        (3, {"on_lost": "dead"}, [False]),
    )
    for count, options, shared in cases:
        known, batch = Suspects(ManualClock(), 60.0), suspects_of(1, count, **options)
        begun = begin(known, batch)
        assert [attempt.shares_turn for attempt in begun] == shared, options
        known.note_written(begun[0])
        assert begin(known, batch[len(begun) :]) == batch[len(begun) : len(begun) + 1]


@rule("M33", "M61")
async def test_few_suspects_begin_at_once_and_keep_no_other_job_waiting(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "SURVIVED_S", 3600.0)
    jobs = rota.Jobs()
    begun: list[int] = []
    go = asyncio.Event()

    @jobs.job("suspect", takes_context=True)
    async def suspect(ctx: rota.Context) -> None:
        begun.append(ctx.job.id)
        await go.wait()

    jobs.job("ordinary")(_nothing)
    put_many(connection, "suspect", 20)
    connection.execute("update rota.job set losses = 1, error_type = 'LeaseExpired'")
    put_many(connection, "ordinary", 50)
    # More slots than suspects, which wait in theirs for `go`.
    async with Hand(database, jobs, slots=30) as hand:
        await hand.heard(JobSucceeded, count=50)
        await aeventually(lambda: len(begun) == 16)
        recorded = "select distinct start_recorded from rota.job where status = 'running'"
        assert (True,) not in rows(connection, recorded), "they began beside others"
        go.set()
        await hand.heard(JobSucceeded, count=70)


@rule("M33", "M83")
def test_jobs_that_were_interrupted_by_deploys_are_no_suspects(connection: Connection) -> None:
    insert(connection, 4)
    hand = StoreHand(connection)
    [first, *_] = suspects_of(0, 1)
    for _ in range(2):
        interrupted = [
            (job, settle(job, Interrupted("a deploy"), first.job_type.rules))
            for job in hand.claim().jobs
        ]
        assert len(hand.settle(*interrupted)) == 4
        connection.execute("update rota.job set run_at = rota.clock()")
    claimed = hand.claim()
    assert {(job.losses, job.attempts) for job in claimed.jobs} == {(2, 1)}
    assert not claimed.suspects


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
    await aeventually(lambda: status(connection, job) != "running")
    reaper.stop()
    await reaping
    await open_link.close()
