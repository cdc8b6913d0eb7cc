"""Handlers in processes of their own, with `process=True`: what comes out, and that they can
be killed for real."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.declare.config import WorkerConfig
from rota.declare.context import Context
from rota.errors import ConfigurationError, DeclarationError, ProcessDied
from rota.model.effect import EffectAnswer
from rota.model.job import Job
from rota.model.outcome import Cancel, HandedBack, Interrupted, Succeeded
from rota.observe.events import HandlerAbandoned, JobClaimed, JobFailed, JobSucceeded, LeaseLost
from rota.store.db import Database
from rota.store.statements import Statements
from rota.worker.attempt import Attempt
from rota.worker.processes import Processes, process_attempt
from rota.worker.processes import pool as pools
from rota.worker.processes.handler_child import _BOOT, HandlerChild
from rota.worker.processes.importable import describe_handler
from rota.worker.processes.messages import (
    Begun,
    EffectAnswered,
    Ended,
    Progressed,
    Ready,
    RunJob,
    Stop,
    Stopped,
)
from rota.worker.spec import WorkerSpec
from rota.worker.worker import Worker
from tests.support import forked
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker import apart, heavy
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import ROOT
from tests.worker.table import Connection, over, put, rows, status, value

pytestmark = pytest.mark.system


def pids(place: Path) -> list[int]:
    """The processes that a handler has named."""
    return [int(pid) for pid in place.read_text().split()] if place.exists() else []


def living(pid: int) -> bool:
    """Whether a process runs; one that is dead and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children() -> set[int]:
    """The child processes of this one and of the one that forks for it, also dead ones that
    are not reaped yet."""
    parents = os.getpid(), forked.parent()
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) in parents:
            found.add(int(stat.parent.name))
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a process behind, running or unreaped."""
    before = children()
    yield
    eventually(lambda: children() <= before, what="every process of the worker is reaped")


def result(connection: Connection, job: int) -> Any:
    """What a job's handler returned."""
    return value(connection, "select result from rota.jobs where id = %s", job)


async def drained(database: str, **config: Any) -> None:
    """Work until nothing is due."""
    await Hand(database, heavy.jobs, drain=True, **config).run()


# What goes in and what comes out


@rule("M41")
async def test_arguments_go_in_and_the_result_comes_out_of_another_process_group(
    database: str, connection: Connection
) -> None:
    job = put(connection, "add", a=1, b=2, on="2026-02-03")
    await drained(database)
    came = result(connection, job)
    assert (came["sum"], came["day"]) == (3, "2026-02-03")
    assert came["pid"] != os.getpid()
    assert came["group"] == came["pid"]


async def test_an_async_handler_runs_in_a_loop_of_its_own(
    database: str, connection: Connection
) -> None:
    job = put(connection, "awaited")
    await drained(database)
    assert result(connection, job) == job


async def test_the_context_is_there_but_for_the_state_that_only_the_worker_has(
    database: str, connection: Connection
) -> None:
    job = put(connection, "seen")
    hand = Hand(database, heavy.jobs, drain=True)
    await hand.run()
    assert result(connection, job) == {
        "id": job,
        "worker": hand.name,
        "state": None,
        "cancelled": None,
        "attempts": 1,
        "app": True,
    }


async def test_a_process_that_finds_no_app_says_so(database: str, connection: Connection) -> None:
    put(connection, "undecorated")
    await drained(database)
    last_error = str(value(connection, "select last_error from rota.job"))
    assert last_error == "ctx.app: no App is known here that has the job's type"


@rule("M43")
async def test_an_exception_comes_out_as_it_was_judged_inside(
    database: str, connection: Connection
) -> None:
    own = "tests.worker.heavy"
    unread = "the handler's outcome cannot be read: TypeError while its outcome was read"
    judged = {
        "raise": ("ValueError", "password=*** is wrong", "transient"),
        "unpicklable": (f"{own}.LocalError", "404: gone", "fatal"),
        "nested": (f"{own}._fail.<locals>.NestedError", "nobody can import me", "transient"),
        "fatal": (f"{own}.FatalError", "no use", "fatal"),
        "system exit": ("SystemExit", "3", "transient"),
        "odd outcome": ("rota.errors.UsageError", unread, "transient"),
    }
    jobs = {how: put(connection, "fails", how=how) for how in judged}
    await drained(database, slots=1)
    for how, expected in judged.items():
        [(*kept, stack)] = rows(
            connection,
            "select error_type, message, verdict, stack from rota.attempt where job = %s",
            jobs[how],
        )
        assert tuple(kept) == expected
        if how != "odd outcome":
            assert "in _fail" in stack
            assert "rota/worker" not in stack


@rule("M11")
async def test_a_handler_in_a_process_waits_for_jobs_and_is_told_of_them(
    database: str, connection: Connection
) -> None:
    first, second = (put(connection, "add", a=n, b=1) for n in range(2))
    job = put(connection, "waits", ids=[first, second])
    await drained(database)
    [(told,)] = rows(connection, "select result from rota.jobs where id = %s", job)
    assert [(outcome, result["sum"]) for outcome, result in told] == [
        ("succeeded", 1),
        ("succeeded", 2),
    ]


@rule("M41", "M43")
async def test_an_outcome_comes_out_and_brings_what_the_error_was_that_it_was_raised_from(
    database: str, connection: Connection
) -> None:
    outcomes = {
        "retry": ("failed", "later", 1),
        "snooze": ("queued", None, 0),
        "dead": ("dead", "no use", 1),
        "cancel": ("cancelled", "cancelled", 1),
        "odd result": ("succeeded", None, 1),
        "retry from": ("failed", "later: 503: gone", 1),
        "dead from": ("dead", "404: gone", 1),
    }
    jobs = {how: put(connection, "fails", how=how) for how in outcomes}
    await drained(database, slots=1)
    ended = "select status, last_error, attempts from rota.jobs where id = %s"
    for how, expected in outcomes.items():
        assert rows(connection, ended, jobs[how]) == [expected], how
    error = "select message, error_type, response_code, stack from rota.attempt where job = %s"
    for how, message, code in (
        ("retry from", "later: 503: gone", 503),
        ("dead from", "404: gone", 404),
    ):
        [(*kept, stack)] = rows(connection, error, jobs[how])
        assert kept == [message, f"{heavy.__name__}.LocalError", code]
        assert "LocalError" in stack
    for how, wait_s in {"retry": 300, "snooze": 3600}.items():
        waiting = (
            "select extract(epoch from run_at - now()) between %s and %s from rota.job "
            "where id = %s"
        )
        assert value(connection, waiting, wait_s - 60, wait_s, jobs[how]) is True


def test_what_a_handler_prints_and_logs_is_on_the_workers_stderr(
    database: str,
    connection: Connection,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    worker = start_worker(database, module="tests.worker.heavy", concurrency=1)
    put(connection, "prints")
    eventually(lambda: over(connection) == 1)
    assert "a line printed by a handler" in worker.log
    assert "a line logged by a handler" in worker.log


@rule("M12")
async def test_a_payload_that_does_not_fit_is_a_payload_mismatch_here_too(
    database: str, connection: Connection
) -> None:
    job = put(connection, "add", a="x", b=2)
    await drained(database)
    assert rows(connection, "select status, last_error from rota.job where id = %s", job) == [
        ("dead", "job type 'add': argument 'a': expected int, got str")
    ]


# A process that dies


@rule("M2", "M43")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("os._exit", "the attempt's process exited with status 7"),
        (
            "killed",
            "the attempt's process was killed by SIGKILL, as the kernel does when memory runs out",
        ),
        ("segfault", "the attempt's process was killed by SIGSEGV"),
        ("forks and dies", "the attempt's process exited with status 8"),
    ],
)
async def test_a_process_that_dies_fails_its_attempt_and_the_next_job_gets_a_new_one(
    database: str, connection: Connection, how: str, message: str
) -> None:
    dying = put(connection, "fails", how=how)
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await hand.heard(JobFailed, job=dying)
        after = put(connection, "fails", how="fine")
        await hand.heard(JobSucceeded, job=after)
    assert rows(connection, "select error_type, message, verdict from rota.attempt") == [
        ("rota.errors.ProcessDied", message, "transient")
    ]


@rule("M2", "M43")
@pytest.mark.parametrize("when", ["idle", "given the job"])
async def test_a_process_that_dies_before_it_begins_its_next_job_fails_none(
    database: str, connection: Connection, when: str
) -> None:
    first = put(connection, "recycled")
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await hand.heard(JobSucceeded, job=first)
        pid = result(connection, first)
        os.kill(pid, signal.SIGKILL if when == "idle" else signal.SIGSTOP)
        second = put(connection, "recycled")
        if when == "given the job":  # and frozen before it could see that
            await hand.heard(JobClaimed, job=second)
            os.kill(pid, signal.SIGKILL)
        await hand.heard(JobSucceeded, job=second)
        assert result(connection, second) != pid
    assert value(connection, "select count(*) from rota.attempt") == 0


async def test_a_process_is_used_again_and_replaced_after_as_many_jobs_as_its_type_says(
    database: str, connection: Connection
) -> None:
    ids = [put(connection, "recycled") for _ in range(5)]
    await drained(database, slots=1)
    ran = [result(connection, job) for job in ids]
    assert sorted(Counter(ran).values()) == [1, 2, 2]


async def test_an_idle_process_is_ended_after_a_while(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "IDLE_S", 0.3)
    job = put(connection, "recycled")
    async with Hand(database, heavy.jobs) as hand:
        await hand.heard(JobSucceeded, job=job)
        await asyncio.to_thread(eventually, lambda: not living(result(connection, job)))


# Killed for real


async def until_over_its_time(hand: Hand, job: int, place: Path) -> list[int]:
    """Wait until a handler runs, let its time be over, and wait until that has ended its attempt.
    Return the processes that it named."""
    named = await asyncio.to_thread(eventually, lambda: pids(place))
    held = hand.worker.attempts[job]
    assert held.began_at is not None
    held.began_at -= held.job_type.options.timeout_s
    hand.worker.parts.executor._watch_at = 0.0  # it does not expect that yet
    await hand.heard(JobFailed, job=job)
    return named


@rule("M35")
async def test_a_handler_over_its_time_is_killed_with_all_that_it_started(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "hangs", place=str(tmp_path / "pids"))
    async with Hand(database, heavy.jobs) as hand:
        both = await until_over_its_time(hand, job, tmp_path / "pids")
        assert len(both) == 2
        await asyncio.to_thread(
            eventually, lambda: not any(living(pid) for pid in both), what="both are gone"
        )
    assert value(connection, "select error_type from rota.attempt") == "rota.errors.AttemptTimeout"


@rule("M35")
async def test_a_process_that_takes_its_time_to_die_is_not_given_up(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "hangs", place=str(tmp_path / "pids"))
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await until_over_its_time(hand, job, tmp_path / "pids")
        await hand.heard(JobSucceeded, job=put(connection, "plain"))
    assert not [event for event in hand.events if isinstance(event, HandlerAbandoned)]


@rule("M35")
@pytest.mark.parametrize("in_another", [False, True], ids=["itself", "with another"])
async def test_a_handler_over_its_memory_is_killed_with_all_that_it_started(
    database: str, connection: Connection, tmp_path: Path, in_another: bool
) -> None:
    job = put(connection, "eats", place=str(tmp_path / "pids"), in_another=in_another)
    async with Hand(database, heavy.jobs) as hand:
        await hand.heard(JobFailed, job=job)
        await asyncio.to_thread(
            eventually, lambda: not any(living(pid) for pid in pids(tmp_path / "pids"))
        )
    [(error_type, message, verdict)] = rows(
        connection, "select error_type, message, verdict from rota.attempt"
    )
    assert (error_type, verdict) == ("rota.errors.MemoryExceeded", "transient")
    used, limit = (int(word) for word in message.split() if word.isdecimal())
    assert limit == 150
    assert 150 <= used < 600  # rounded


@rule("M35")
@pytest.mark.parametrize("job_type", ["stops", "stops awaiting"])
async def test_a_handler_that_asks_learns_why_before_it_is_killed_and_the_next_does_not(
    database: str,
    connection: Connection,
    tmp_path: Path,
    job_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_attempt, "PROCESS_STOP_S", 30.0)
    monkeypatch.setattr("rota.worker.runners.ProcessRunner.stop_s", 60.0)
    for _ in range(2):
        put(connection, job_type, place=str(tmp_path / "why"))
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await hand.heard(JobFailed, 2)
    assert (tmp_path / "why").read_text() == "it ran longer than its timeout of 0.6 s\n" * 2
    ran = "select error_type, finished_at - started_at > interval '0.6 s' from rota.attempt"
    assert rows(connection, ran) == [("rota.errors.AttemptTimeout", True)] * 2


@rule("M21", "M35")
async def test_a_job_s_own_timeout_counts_in_a_process_too(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_attempt, "PROCESS_STOP_S", 30.0)
    monkeypatch.setattr("rota.worker.runners.ProcessRunner.stop_s", 60.0)
    put(connection, "stops", place=str(tmp_path / "why"))
    connection.execute("update rota.job set timeout = '1.5 s'")
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await hand.heard(JobFailed)
    assert (tmp_path / "why").read_text() == "it ran longer than its timeout of 1.5 s\n"


@rule("M32")
async def test_a_handler_whose_lease_was_lost_is_killed_and_writes_nothing(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "until", place=str(tmp_path / "pid"), go=str(tmp_path / "go"))
    async with Hand(database, heavy.jobs) as hand:
        await asyncio.to_thread(eventually, lambda: pids(tmp_path / "pid"))
        connection.execute(
            "update rota.job set claims = claims + 1, locked_by = 'another', "
            "locked_until = now() + '1 h' where id = %s",
            [job],
        )
        # So that it asks now.
        connection.execute(
            "select pg_notify(%s, '')", [Statements("rota").worker_channel(hand.name)]
        )
        await hand.heard(LeaseLost, job=job)
        await asyncio.to_thread(eventually, lambda: not living(pids(tmp_path / "pid")[0]))
    assert status(connection, job) == "running"


@rule("M83")
async def test_a_worker_on_its_way_out_kills_what_does_not_stop_and_hands_it_back(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "until", place=str(tmp_path / "pid"), go=str(tmp_path / "go"))
    async with Hand(database, heavy.jobs, grace_s=0.1):
        [pid] = await asyncio.to_thread(eventually, lambda: pids(tmp_path / "pid"))
    await asyncio.to_thread(eventually, lambda: not living(pid))
    assert rows(connection, "select status, attempts from rota.job where id = %s", job) == [
        ("queued", 0)
    ]


async def test_a_cpu_bound_job_blocks_neither_the_loop_nor_the_leases(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    busy = put(connection, "holds the lock", place=str(tmp_path / "pids"))
    async with Hand(database, heavy.jobs, lease_s=6, grace_s=0) as hand:
        both = await asyncio.to_thread(eventually, lambda: pids(tmp_path / "pids"))
        renewed = "select locked_until from rota.job where id = %s"
        before = value(connection, renewed, busy)
        for _ in range(3):
            beside = put(connection, "plain")
            await hand.heard(JobSucceeded, job=beside)
        await asyncio.to_thread(eventually, lambda: value(connection, renewed, busy) != before)
    await asyncio.to_thread(eventually, lambda: not any(living(pid) for pid in both))
    assert status(connection, busy) == "queued"


async def test_a_handler_that_is_stopped_before_it_begins_never_begins(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: asyncio.Queue[Attempt] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    real = describe_handler

    def slow(*given: Any) -> Any:
        [held] = hand.worker.attempts.values()
        loop.call_soon_threadsafe(started.put_nowait, held)
        eventually(lambda: held.stop_outcome is not None)
        return real(*given)

    monkeypatch.setattr("rota.worker.processes.pool.describe_handler", slow)
    # Being killed is not the reason why it does not begin.
    monkeypatch.setattr(process_attempt, "PROCESS_STOP_S", 30.0)
    monkeypatch.setattr("rota.worker.executor.ASYNC_STOP_S", 30.0)
    job = put(connection, "until", place=str(tmp_path / "pid"), go=str(tmp_path / "go"))
    async with Hand(database, heavy.jobs, grace_s=0) as hand:
        await asyncio.wait_for(started.get(), 30)
    assert not (tmp_path / "pid").exists()
    assert rows(connection, "select status, attempts from rota.job where id = %s", job) == [
        ("queued", 0)
    ]


async def test_a_process_that_does_not_get_ready_in_time_fails_its_attempt(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_attempt, "START_S", 0.0)
    job = put(connection, "add", a=1, b=1)
    await drained(database)
    assert (
        value(connection, "select last_error from rota.job where id = %s", job)
        == "the attempt's process did not import its handler within 0 s"
    )


def held_job(job_type: str, **arguments: str) -> tuple[Attempt, Context]:
    """A claimed job, about to start."""
    now = datetime.now(UTC)
    job = Job(
        id=1,
        origin_id=1,
        queue="default",
        job_type=job_type,
        payload_json=json.dumps(arguments),
        payload_version=None,
        priority=0,
        run_at=now,
        expires_at=None,
        attempts=1,
        max_attempts=None,
        claims=1,
        idempotency_key=None,
        meta_json=None,
        created_at=now,
    )
    held = Attempt(job, heavy.jobs.types[job_type]._declaration, time.monotonic(), 60.0)
    held.context = Context(job, "worker")
    return held, held.context


@pytest.fixture
async def pool() -> AsyncIterator[Processes]:
    """The processes of a worker, without the worker."""
    pool = Processes("worker", None, Database(""), "r")
    yield pool
    pool.close()


async def test_a_process_that_is_used_again_does_not_begin_what_was_told_to_stop(
    pool: Processes, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "go")}
    first, _ = held_job("until", **arguments)
    assert await pool.attempt(first, arguments) == Succeeded('"went"')
    second, _ = held_job("until", **arguments)
    second.stop_outcome = HandedBack("its lease was lost")
    assert isinstance(await pool.attempt(second, arguments), HandedBack)
    assert len(pids(tmp_path / "begun")) == 1


async def test_a_process_that_was_told_to_stop_is_used_again_as_if_it_had_not(
    pool: Processes, tmp_path: Path
) -> None:
    why = tmp_path / "why"
    arguments = {"place": str(why)}
    for reason in ("one", "two"):
        held, context = held_job("stops", **arguments)
        attempt = asyncio.create_task(pool.attempt(held, arguments))
        await asyncio.to_thread(eventually, lambda held=held: held.began_at is not None)
        held.stop_outcome = Cancel(reason)
        context.request_stop(reason)
        assert await attempt is held.stop_outcome
    assert why.read_text() == "one\ntwo\n"


@rule("M32", "M72")
async def test_what_the_last_job_of_a_process_said_too_late_is_not_said_of_the_next(
    pool: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    said: list[str] = []
    hear = HandlerChild.receive

    def receive(process: HandlerChild, for_s: float) -> Any:
        heard.append(hear(process, for_s))
        return heard[-1]

    monkeypatch.setattr(HandlerChild, "receive", receive)
    arguments = {"go": str(tmp_path / "go")}
    loud, _ = held_job("speaks late", **arguments)
    ran = await pool.attempt(loud, arguments)
    silent, _ = held_job("speaks late", **arguments)
    silent.job = msgspec.structs.replace(silent.job, id=2)
    silent.context = Context(
        silent.job, "worker", None, lambda context: said.append(context.encode_progress())
    )
    attempt = asyncio.create_task(pool.attempt(silent, arguments))
    # The second has come when the first was dealt with.
    await asyncio.to_thread(
        eventually, lambda: [one.job for one in heard if isinstance(one, Progressed)][:2] == [1, 1]
    )
    (tmp_path / "go").touch()
    assert await asyncio.wait_for(attempt, 30) == ran, "one process ran both"
    assert said == []


@rule("M33")
async def test_a_job_for_which_no_process_can_be_started_costs_no_attempt(
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when the machine has no room for one, or a deploy has just removed the interpreter."""
    jobs = [put(connection, "add", a=1, b=2), put(connection, "add", a=1, b=2)]
    connection.execute("update rota.job set max_attempts = 1 where id = %s", [jobs[1]])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    report = await Hand(database, heavy.jobs, drain=True).run()
    assert (report.failed, report.dead) == (0, 0)
    kept = "select status, attempts, run_at > updated_at + interval '5 seconds' from rota.job"
    assert rows(connection, kept) == [("queued", 0, True)] * 2
    assert (
        caplog.text.count(
            "no process can be started for it: [Errno 2] No such file or directory: "
            "'/nowhere/python'"
        )
        >= 2
    )


@rule("M33")
@pytest.mark.parametrize(
    ("jobs", "job_type", "what"), [(apart.jobs, "target", "thread"), (heavy.jobs, "add", "process")]
)
async def test_a_job_for_which_no_thread_can_be_started_costs_no_attempt(
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    jobs: rota.Jobs,
    job_type: str,
    what: str,
) -> None:
    """As where a limit of tasks is reached (`ulimit -u`, a container's pids limit): a plain
    function needs a thread, and so does who looks after a process."""
    start = threading.Thread.start

    def none_for_jobs(thread: threading.Thread) -> None:
        if thread.name.startswith(("rota-handler", "rota-process")):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", none_for_jobs)
    arguments = {"a": 1, "b": 2} if job_type == "add" else {}
    ids = [put(connection, job_type, **arguments) for _ in range(3)]
    connection.execute("update rota.job set max_attempts = 1 where id > %s", [ids[0]])
    report = await Hand(database, jobs, drain=True).run()
    assert (report.failed, report.dead) == (0, 0)
    kept = "select status, attempts, run_at > updated_at + interval '5 seconds' from rota.job"
    assert rows(connection, kept) == [("queued", 0, True)] * 3
    assert caplog.text.count(f"no {what} can be started for it: can't start new thread") >= 3


NO_THREADS = """\
import threading
def none(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = none
"""


@rule("M33")
@pytest.mark.parametrize(
    ("first_of_all", "why"),
    [
        (NO_THREADS, "can't start new thread"),
        ("import os; os._exit(1)", "the attempt's process exited with status 1"),
    ],
    ids=["no threads", "no interpreter"],
)
async def test_a_job_whose_process_does_not_get_what_it_needs_to_come_up_costs_no_attempt(
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    first_of_all: str,
    why: str,
) -> None:
    """As under a limit of tasks, files or memory that the process itself runs into, before anything
    of the application's has been done."""
    job = put(connection, "add", a=1, b=2)
    connection.execute("update rota.job set max_attempts = 1")
    monkeypatch.setattr("rota.worker.processes.handler_child._BOOT", f"{first_of_all}\n{_BOOT}")
    report = await Hand(database, heavy.jobs, drain=True).run()
    assert (report.failed, report.dead) == (0, 0)
    assert rows(connection, "select id, status, attempts from rota.job") == [(job, "queued", 0)]
    assert f"no process can be started for it: {why}" in caplog.text


@rule("M33")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_copy_of_the_worker_that_outlives_it_keeps_no_process() -> None:
    """Such as the children of `multiprocessing` that a handler in a thread has left."""
    held, _ = held_job("awaited")
    process = HandlerChild(describe_handler(held.job_type, "worker", None, Database(""), "r"))
    assert isinstance(process.receive(30), Ready)
    copy = os.fork()
    if copy == 0:
        signal.pause()
        os._exit(0)
    try:
        process.close()  # as when the worker is killed
        eventually(lambda: process.has_exited, what="the process ends with its worker")
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
        process.end()


@rule("M2")
async def test_what_a_process_says_of_another_job_ends_none(
    pool: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = [Ended(1, 1, Succeeded('"another claim"')), Ended(2, 0, Succeeded('"another job"'))]
    hear = HandlerChild.receive

    def receive(process: HandlerChild, for_s: float) -> Any:
        return stale.pop() if process.is_ready and stale else hear(process, for_s)

    held, _ = held_job("awaited")
    held.job = msgspec.structs.replace(held.job, id=1, claims=0)
    monkeypatch.setattr(HandlerChild, "receive", receive)
    assert await pool.attempt(held, {}) == Succeeded("1")
    assert stale == []


@rule("M32")
async def test_a_handler_that_is_only_cancelled_may_finish(pool: Processes, tmp_path: Path) -> None:
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "go")}
    held, context = held_job("until", **arguments)
    attempt = asyncio.create_task(pool.attempt(held, arguments))
    await asyncio.to_thread(eventually, lambda: pids(tmp_path / "begun"))
    held.stop_outcome = Cancel("not needed any more")
    context.request_stop("it was cancelled")
    done, _ = await asyncio.wait([attempt], timeout=2 * process_attempt.PROCESS_STOP_S)
    assert not done
    (tmp_path / "go").touch()
    assert await asyncio.wait_for(attempt, 30) == Succeeded('"went"')


async def test_an_async_handler_that_is_stopped_at_once_stops_too(tmp_path: Path) -> None:
    arguments = {"place": str(tmp_path / "why")}
    held, _ = held_job("stops awaiting", **arguments)
    process = HandlerChild(describe_handler(held.job_type, "worker", None, Database(""), "r"))
    assert isinstance(process.receive(30), Ready)
    process.send(RunJob(held.job, pickle.dumps(arguments)))
    process.send(Stop("at once"))
    assert process.receive(30) == Begun()
    assert process.receive(30) == Ended(held.job.id, held.job.claims, Stopped())
    process.end()


@rule("M2", "M33")
@pytest.mark.parametrize("late", [Stop("at once"), EffectAnswered(0, EffectAnswer("ended"))])
async def test_what_a_process_sent_before_it_died_is_read_whatever_it_is_told_then(
    late: Stop | EffectAnswered,
) -> None:
    """Else a handler that has run would count as one that never began, and run again."""
    held, _ = held_job("fails", how="os._exit")
    process = HandlerChild(describe_handler(held.job_type, "worker", None, Database(""), "r"))
    assert isinstance(process.receive(30), Ready)
    process.send(RunJob(held.job, pickle.dumps({"how": "os._exit"})))
    # All its threads must have ended: only then is its end of the channel closed.
    await asyncio.to_thread(eventually, lambda: process.has_exited)
    process.send(late)
    assert process.receive(10) == Begun()
    with pytest.raises(ProcessDied):
        process.receive(10)
    process.end()


@rule("M52", "M33")
async def test_an_effect_that_the_database_refuses_ends_the_attempt_and_not_the_thread(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "create function refuse() returns trigger language plpgsql as "
        "'begin raise exception ''no effects today''; end'"
    )
    connection.execute(
        "create trigger refuse before insert on rota.effect for each row execute function refuse()"
    )
    job = put(connection, "sends")
    await asyncio.wait_for(drained(database), 30)
    assert status(connection, job) == "failed"
    assert "no effects today" in str(value(connection, "select message from rota.attempt"))


async def test_cancelling_an_attempt_stops_its_handler_and_waits_until_it_is_over(
    pool: Processes, tmp_path: Path
) -> None:
    arguments = {"place": str(tmp_path / "why")}
    held, _ = held_job("stops", **arguments)
    attempt = asyncio.create_task(pool.attempt(held, arguments))
    await asyncio.to_thread(eventually, lambda: held.began_at is not None)
    attempt.cancel()
    await asyncio.wait([attempt], timeout=30)
    pool.close()  # so that it ends at least now
    assert isinstance(await attempt, Interrupted)
    assert (tmp_path / "why").read_text() == "the worker is going down\n"


async def test_a_process_that_starts_while_the_worker_ends_is_killed(
    pool: Processes, tmp_path: Path
) -> None:
    pool.close()
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "never")}
    held, _ = held_job("until", **arguments)
    attempt = asyncio.create_task(pool.attempt(held, arguments))
    await asyncio.wait([attempt], timeout=30)
    (tmp_path / "never").touch()  # so that it ends at least now
    assert isinstance(await attempt, HandedBack)
    assert not (tmp_path / "begun").exists()


async def test_closing_kills_what_runs(pool: Processes, tmp_path: Path) -> None:
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "never")}
    held, _ = held_job("until", **arguments)
    attempt = asyncio.create_task(pool.attempt(held, arguments))
    await asyncio.to_thread(eventually, lambda: pids(tmp_path / "begun"))
    pool.close()
    await asyncio.wait([attempt], timeout=30)
    (tmp_path / "never").touch()  # so that it ends at least now
    assert isinstance(await attempt, Interrupted)
    assert not living(pids(tmp_path / "begun")[0])


def test_a_process_whose_worker_is_gone_ends_also_where_the_kernel_does_not_see_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.runtime.child_process.kill_at_hang_up", lambda *_: None)
    process = HandlerChild(
        describe_handler(heavy.jobs.types["until"]._declaration, "worker", None, Database(""), "r")
    )
    assert isinstance(process.receive(30), Ready)
    process.channel.close()
    eventually(lambda: not living(process.pid))
    process.end()


async def test_it_needs_no_event_loop_of_the_main_thread(
    database: str, connection: Connection
) -> None:
    job = put(connection, "add", a=1, b=1)
    await asyncio.to_thread(lambda: asyncio.run(drained(database)))
    assert status(connection, job) == "succeeded"


# The worker as a process


@rule("M2", "M33")
@pytest.mark.parametrize("job_type", ["until", "holds the lock"])
def test_a_worker_that_is_killed_takes_its_processes_and_what_they_started_along(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path, job_type: str
) -> None:
    more = {"go": str(tmp_path / "go")} if job_type == "until" else {}
    worker = start_worker(database, module="tests.worker.heavy", concurrency=1)
    put(connection, job_type, place=str(tmp_path / "pids"), **more)
    found = eventually(lambda: pids(tmp_path / "pids"))

    worker.kill()
    eventually(lambda: not any(living(pid) for pid in found), 5, what="all are gone at once")


@rule("M83")
def test_signals_to_the_whole_group_leave_it_to_the_worker_what_becomes_of_a_job(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    worker = start_worker(database, module="tests.worker.heavy", concurrency=1)
    job = put(connection, "until", place=str(tmp_path / "pid"), go=str(tmp_path / "go"))
    [pid] = eventually(lambda: pids(tmp_path / "pid"), 30)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    worker.signal(signal.SIGTERM)  # once: a second signal skips the grace period
    (tmp_path / "go").touch()
    assert worker.wait() == 0, worker.log
    assert result(connection, job) == "went"


@rule("M83")
def test_a_worker_that_is_told_to_stop_ends_its_idle_processes(
    start_worker: StartWorker, database: str, connection: Connection
) -> None:
    worker = start_worker(database, module="tests.worker.heavy", concurrency=1)
    job = put(connection, "recycled")
    eventually(lambda: over(connection) == 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log
    eventually(lambda: not living(result(connection, job)))


def test_a_handler_finds_the_app_that_its_module_does_not_know(
    database: str, connection: Connection
) -> None:
    job = put(connection, "enqueues")
    command = ["-m", "rota", "work", "--drain", "--app", "tests.worker.heavy:app"]
    done = forked.run(command, cwd=ROOT, env={**os.environ, "ROTA_DATABASE_URL": database})
    assert done.returncode == 0, done.stderr
    assert status(connection, job) == "succeeded", done.stderr
    assert status(connection, result(connection, job)) == "succeeded"


MAIN = """
import rota, sys
app = rota.App()

class OwnError(Exception): ...

@app.job("own", process=True, fatal_on=(OwnError,))
def own():
    raise OwnError("of the main module")
"""


@pytest.mark.parametrize("guarded", [True, False])
def test_a_handler_of_the_main_module_is_found_if_importing_that_starts_no_worker(
    database: str, connection: Connection, tmp_path: Path, guarded: bool
) -> None:
    (tmp_path / "main.py").write_text(
        MAIN + ('if __name__ == "__main__": ' if guarded else "") + "app.drain()"
    )
    job = put(connection, "own")
    environment = {**os.environ, "ROTA_DATABASE_URL": database}
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept = rows(
        connection, "select status, error_type, last_error from rota.job where id = %s", job
    )
    if guarded:
        assert kept == [("dead", "__main__.OwnError", "of the main module")]
    else:
        [(stored, error_type, message)] = kept
        assert (stored, error_type) == ("failed", "rota.errors.UsageError")
        assert 'under `if __name__ == "__main__":`' in message


SLOW = """
import rota, time
app = rota.App()
if __name__ != "__main__":
    time.sleep(2)

@app.job("slow to import", process=True, timeout="1500ms", max_attempts=1)
def slow(): ...

if __name__ == "__main__":
    app.drain()
"""


@rule("M35")
def test_the_time_that_importing_a_handler_takes_is_not_the_attempts(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text(SLOW)
    job = put(connection, "slow to import")
    environment = {**os.environ, "ROTA_DATABASE_URL": database}
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert status(connection, job) == "succeeded", done.stderr


# What cannot run in a process is refused when the worker starts


def make_spec(jobs: rota.Jobs) -> WorkerSpec:
    return WorkerSpec(
        types={one.name: one._declaration for one in jobs.types.values()},
        release="hand-1",
        lease_s=120.0,
        declaration="[]",
        config=WorkerConfig(),
    )


async def test_a_handler_that_another_process_cannot_import_is_refused_when_the_worker_starts(
    database: str,
) -> None:
    from rota.observe.events import Bus

    def local() -> None: ...

    class LocalError(Exception): ...

    nested, unimportable = rota.Jobs(), rota.Jobs()
    nested.job("nested", process=True)(local)
    unimportable.job("errors", process=True, retry_on=(LocalError,))(heavy.say)
    lambdas = rota.Jobs()
    lambdas.job("lambda", process=True)(lambda: None)

    for jobs, name in ((nested, "nested"), (lambdas, "lambda"), (unimportable, "errors")):
        with pytest.raises(DeclarationError, match=f"job type '{name}': process=True needs"):
            Worker(Database(database), make_spec(jobs), Bus())


async def test_other_systems_are_refused_when_the_worker_starts(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rota.observe.events import Bus

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigurationError, match="works on Linux only"):
        Worker(Database(database), make_spec(heavy.jobs), Bus())


@pytest.fixture
def as_process_1() -> Iterator[None]:
    """Orphans become this process's children, as they do those of process 1."""
    prctl, child_subreaper = ctypes.CDLL(None).prctl, 36
    prctl(child_subreaper, 1, 0, 0, 0)
    yield
    prctl(child_subreaper, 0, 0, 0, 0)


async def test_a_worker_that_is_process_1_reaps_what_its_processes_had_started(
    as_process_1: None, database: str, connection: Connection, tmp_path: Path
) -> None:
    before = children()
    job = put(connection, "hangs", place=str(tmp_path / "pids"))
    async with Hand(database, heavy.jobs) as hand:
        await until_over_its_time(hand, job, tmp_path / "pids")
        await asyncio.to_thread(eventually, lambda: children() <= before)
