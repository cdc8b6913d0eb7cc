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
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.declare.config import WorkerConfig
from rota.declare.context import Context
from rota.errors import ConfigurationError, DeclarationError, MemoryExceeded, ProcessDied
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted, Succeeded
from rota.observe.events import Bus, HandlerAbandoned, JobFailed, JobSucceeded
from rota.store.db import Database
from rota.worker.attempt import Attempt
from rota.worker.processes import process_attempt, process_runner
from rota.worker.processes.handler_child import _BOOT, HandlerChild
from rota.worker.processes.importable import describe_handler
from rota.worker.processes.messages import (
    Begun,
    Ended,
    Ready,
    RunJob,
    Stop,
)
from rota.worker.processes.process_runner import ProcessRunner
from rota.worker.spec import WorkerSpec
from rota.worker.worker import Worker
from tests.support import forked
from tests.support.job import make_job
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker import apart, heavy
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand, make_spec
from tests.worker.process import ROOT, lives
from tests.worker.table import Connection, put, rows, status, value

pytestmark = pytest.mark.system


def pids(place: Path) -> list[int]:
    """The processes that a handler has named."""
    return [int(pid) for pid in place.read_text().split()] if place.exists() else []


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


# In a worker


@pytest.mark.nightly
@rule("M11", "M41")
async def test_arguments_the_context_and_results_of_others_go_in_and_the_result_comes_out(
    database: str, connection: Connection
) -> None:
    other = put(connection, "plain")
    job = put(connection, "seen", on="2026-02-03", ids=[other])
    hand = Hand(database, heavy.jobs, drain=True)
    await hand.run()
    came = result(connection, job)
    pid, group = came.pop("pid"), came.pop("group")
    assert pid == group != os.getpid()
    assert came == {
        "on": "2026-02-03",
        "id": job,
        "worker": hand.name,
        "state": None,  # only the worker has it
        "cancelled": None,
        "has time left": True,
        "attempts": 1,
        "app": True,
        "told": [["succeeded", 7]],
    }


@pytest.mark.nightly
@rule("M41", "M43")
async def test_errors_and_outcomes_come_out_as_they_were_judged_inside(
    database: str, connection: Connection
) -> None:
    own = "tests.worker.heavy"
    unread = "the handler's outcome cannot be read: TypeError while its outcome was read"
    errors = {
        "raise": ("ValueError", "password=*** is wrong", "transient", None),
        "unpicklable": (f"{own}.LocalError", "404: gone", "fatal", 404),
        "nested": (f"{own}._fail.<locals>.NestedError", "nobody can import me", "transient", None),
        "fatal": (f"{own}.FatalError", "no use", "fatal", None),
        "system exit": ("SystemExit", "3", "transient", None),
        "odd outcome": ("rota.errors.UsageError", unread, "transient", None),
        "retry from": (f"{own}.LocalError", "later: 503: gone", "transient", 503),
    }
    outcomes = {
        "retry": ("failed", "later", 1),
        "snooze": ("queued", None, 0),
        "dead": ("dead", "no use", 1),
        "cancel": ("cancelled", "cancelled", 1),
        "odd result": ("succeeded", None, 1),
        "dead from": ("dead", "404: gone", 1),
    }
    jobs = {how: put(connection, "fails", how=how) for how in (*errors, *outcomes)}
    await Hand(database, heavy.jobs, drain=True, slots=1).run()
    error = (
        "select error_type, message, verdict, response_code, stack from rota.attempt where job = %s"
    )
    for how, expected in errors.items():
        [(kind, message, verdict, code, stack)] = rows(connection, error, jobs[how])
        assert (kind, message) == expected[:2], how
        assert expected[3] in (None, code), how
        if how != "retry from":  # it was not raised, and is not what was judged
            assert verdict == expected[2], how
        if how not in ("retry from", "odd outcome"):
            assert "rota/worker" not in stack and "heavy.py" in stack, how
    ended = "select status, last_error, attempts from rota.jobs where id = %s"
    for how, stands in outcomes.items():
        assert rows(connection, ended, jobs[how]) == [stands], how
    waits = (
        "select extract(epoch from run_at - now()) between %s and %s from rota.job where id = %s"
    )
    for how, wait_s in {"retry": 300, "snooze": 3600}.items():
        assert value(connection, waits, wait_s - 60, wait_s, jobs[how]) is True, how


@rule("M2", "M43")
async def test_a_process_that_dies_fails_its_attempt_and_the_next_job_gets_a_new_one(
    database: str, connection: Connection
) -> None:
    """A program that it has started keeps its end of the channel open."""
    dying = put(connection, "fails", how="forks and dies")
    async with Hand(database, heavy.jobs, slots=1) as hand:
        await hand.heard(JobFailed, job=dying)
        await hand.heard(JobSucceeded, job=put(connection, "fails", how="fine"))
    assert rows(connection, "select error_type, message, verdict from rota.attempt") == [
        ("rota.errors.ProcessDied", "the attempt's process exited with status 8", "transient")
    ]


@pytest.fixture
def as_process_1() -> Iterator[None]:
    """Orphans become this process's children, as they do those of process 1."""
    prctl, child_subreaper = ctypes.CDLL(None).prctl, 36
    prctl(child_subreaper, 1, 0, 0, 0)
    yield
    prctl(child_subreaper, 0, 0, 0, 0)


@rule("M35")
async def test_a_handler_over_its_time_is_killed_with_all_that_it_started(
    as_process_1: None, database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "hangs", place=str(tmp_path / "pids"))
    async with Hand(database, heavy.jobs, slots=1) as hand:
        both = await aeventually(lambda: pids(tmp_path / "pids"))
        assert len(both) == 2
        held = hand.worker.attempts[job]
        assert held.began_at is not None
        held.began_at -= held.job_type.options.timeout_s
        hand.worker.parts.executor.stopper.watch_at = 0.0  # it does not expect that yet
        await hand.heard(JobFailed, job=job)
        await hand.heard(JobSucceeded, job=put(connection, "plain"))  # its slot is free
        await aeventually(lambda: not any(lives(pid) for pid in both), what="both are gone")
    assert value(connection, "select error_type from rota.attempt") == "rota.errors.AttemptTimeout"
    assert not [event for event in hand.events if isinstance(event, HandlerAbandoned)]


@rule("M33")
async def test_a_job_for_which_no_thread_can_be_started_costs_no_attempt(
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a limit of tasks is reached (`ulimit -u`, a container's pids limit): a plain
    function needs a thread, and so does who looks after a process."""
    start = threading.Thread.start

    def none_for_jobs(thread: threading.Thread) -> None:
        if thread.name.startswith(("rota-handler", "rota-process")):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", none_for_jobs)
    jobs = rota.Jobs()
    jobs._types.update(apart.jobs.types, awaited=heavy.jobs.types["awaited"])
    ids = [put(connection, name) for name in ("target", "awaited") * 2]
    connection.execute("update rota.job set max_attempts = 1 where id > %s", [ids[1]])
    report = await Hand(database, jobs, drain=True).run()
    assert (report.failed, report.dead) == (0, 0)
    kept = "select status, attempts, run_at > updated_at + interval '5 seconds' from rota.job"
    assert rows(connection, kept) == [("queued", 0, True)] * 4
    for what in ("thread", "process"):
        said = f"no {what} can be started for it: can't start new thread"
        assert caplog.text.count(said) >= 2, what


# The processes of a worker, without the worker


def held_job(job_type: str, **arguments: str) -> tuple[Attempt, Context]:
    """A claimed job, about to start."""
    job = make_job(job_type=job_type, payload_json=json.dumps(arguments))
    held = Attempt(job, heavy.jobs.types[job_type]._declaration, time.monotonic(), 60.0)
    held.context = Context(job, "worker")
    return held, held.context


def start_child(job_type: str) -> HandlerChild:
    """A process that has imported its handler."""
    declaration = heavy.jobs.types[job_type]._declaration
    process = HandlerChild(describe_handler(declaration, make_spec(heavy.jobs), Database("")), None)
    assert isinstance(process.receive(30), Ready)
    return process


class Pool(ProcessRunner):
    """The processes of a worker, without the worker."""

    def __init__(self) -> None:
        super().__init__(self.handle_end, make_spec(heavy.jobs), Database(""))
        self.ends: dict[Attempt, asyncio.Future[End]] = {}

    def run(self, attempt: Attempt) -> asyncio.Future[End]:
        """Begin an attempt; return its future outcome."""
        self.ends[attempt] = asyncio.get_running_loop().create_future()
        self.begin([attempt])
        return self.ends[attempt]

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """Take an outcome, as the executor does."""
        self.ends[attempt].set_result(end)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """The processes of a worker, without the worker."""
    pool = Pool()
    yield pool
    pool.close()


@rule("M32", "M83")
async def test_a_process_runs_job_after_job_until_one_of_them_must_end(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_attempt, "PROCESS_STOP_S", 0.05)
    begun, go = tmp_path / "begun", tmp_path / "go"
    arguments = {"place": str(begun), "go": str(go)}

    async def start(count: int) -> tuple[Attempt, asyncio.Future[End]]:
        held, _ = held_job("until", **arguments)
        attempt = pool.run(held)
        await aeventually(lambda: len(pids(begun)) == count)
        return held, attempt

    # Signals to all processes of a service leave it to the worker what becomes of a job.
    held, attempt = await start(1)
    [pid] = pids(begun)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    # A handler that is only cancelled may finish.
    held.stop(Cancel("not needed any more"), "it was cancelled")
    held.tell_stop()
    done, _ = await asyncio.wait([attempt], timeout=3 * process_attempt.CHECK_S)
    assert not done
    go.touch()
    assert await asyncio.wait_for(attempt, 30) == Succeeded('"went"')

    # What was told to stop before it begins does not begin.
    held, _ = held_job("until", **arguments)
    held.stop(HandedBack("its lease was lost"), "it was lost")
    assert isinstance(await pool.run(held), HandedBack)
    assert len(pids(begun)) == 1

    # What lost its lease is killed.
    go.unlink()
    held, attempt = await start(2)
    held.stop(HandedBack("its lease was lost"), "it was lost", time.monotonic() + 60)
    assert await asyncio.wait_for(attempt, 30) is held.stop_outcome
    assert pids(begun) == [pid, pid] and not lives(pid)


async def test_a_worker_that_ends_kills_what_runs(pool: Pool, tmp_path: Path) -> None:
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "never")}
    held, _ = held_job("until", **arguments)
    attempt = pool.run(held)
    await aeventually(lambda: pids(tmp_path / "begun"))
    pool.close()
    assert isinstance(await attempt, Interrupted)
    assert not lives(pids(tmp_path / "begun")[0])


async def test_a_process_that_starts_while_the_worker_ends_is_killed(
    pool: Pool, tmp_path: Path
) -> None:
    pool.close()
    arguments = {"place": str(tmp_path / "begun"), "go": str(tmp_path / "never")}
    held, _ = held_job("until", **arguments)
    assert isinstance(await asyncio.wait_for(pool.run(held), 30), HandedBack)
    assert not (tmp_path / "begun").exists()


@rule("M35")
async def test_a_handler_that_asks_learns_why_it_must_stop_and_the_next_one_does_not(
    pool: Pool, tmp_path: Path
) -> None:
    why = tmp_path / "why"
    arguments = {"place": str(why)}

    async def begin() -> tuple[Attempt, asyncio.Future[End]]:
        held, _ = held_job("stops", **arguments)
        attempt = pool.run(held)
        await aeventually(lambda: held.began_at is not None)
        return held, attempt

    for reason in ("one", "two"):
        held, attempt = await begin()
        held.stop(Cancel(reason), reason)
        held.tell_stop()
        assert await attempt is held.stop_outcome
    assert why.read_text() == "one\ntwo\n"


@pytest.mark.nightly
@rule("M2", "M43")
async def test_a_process_is_used_again_and_replaced_when_it_has_run_enough_or_has_died(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        end = await pool.run(held_job("recycled")[0])
        assert isinstance(end, Succeeded), end
        return int(str(end.result_json))

    def living() -> list[HandlerChild]:
        return [child for child in pool._living if isinstance(child, HandlerChild)]

    first = await run()
    assert await run() == first
    second = await run()  # after two jobs it is another process
    assert second != first
    os.kill(second, signal.SIGKILL)  # while it is idle
    third = await run()
    os.kill(third, signal.SIGSTOP)  # it gets its job, and dies before it could begin
    stat = Path(f"/proc/{third}/stat")
    await aeventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    attempt = asyncio.create_task(run())
    await aeventually(lambda: [child.jobs for child in living() if child.pid == third] == [2])
    os.kill(third, signal.SIGKILL)
    fourth = await attempt
    assert len({first, second, third, fourth}) == 4
    monkeypatch.setattr(process_runner, "IDLE_S", 0.01)
    assert await run() == fourth, "used up"
    fifth = await run()
    await aeventually(lambda: not lives(fifth), what="the idle one is ended")


async def test_what_a_handler_prints_and_logs_is_on_the_workers_stderr(
    pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(await pool.run(held_job("prints")[0]), Succeeded)
    pool.close()
    said = capfd.readouterr()
    assert "a line printed by a handler" in said.err and said.out == ""
    assert "a line logged by a handler" in said.err


@rule("M35")
async def test_a_handler_over_its_memory_is_killed_with_all_that_it_started(
    pool: Pool, tmp_path: Path
) -> None:
    """What it has started counts."""
    arguments = {"place": str(tmp_path / "pids")}
    end = await pool.run(held_job("eats", **arguments)[0])
    assert isinstance(end, Errored) and isinstance(end.error, MemoryExceeded)
    used, limit = (int(word) for word in str(end.error).split() if word.isdecimal())
    assert limit == 150 <= used < 600
    both = pids(tmp_path / "pids")
    assert len(both) == 2 and not any(lives(pid) for pid in both)


@rule("M2")
async def test_what_a_process_says_of_another_job_ends_none(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = [
        Ended((1, 1), Succeeded('"another claim"')),
        Ended((2, 0), Succeeded('"another job"')),
    ]
    hear = HandlerChild.receive

    def receive(process: HandlerChild, for_s: float) -> Any:
        return stale.pop() if process.is_ready and stale else hear(process, for_s)

    held, _ = held_job("awaited")
    held.job = msgspec.structs.replace(held.job, id=1, claims=0)
    monkeypatch.setattr(HandlerChild, "receive", receive)
    assert await pool.run(held) == Succeeded("1")
    assert stale == []


# What the machine has no room for


NO_THREADS = """\
import threading
def none(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = none
"""


@rule("M33")
@pytest.mark.parametrize(
    ("target", "instead", "why"),
    [
        ("sys.executable", "/nowhere/python", "No such file or directory: '/nowhere/python'"),
        ("rota.worker.processes.handler_child._BOOT", NO_THREADS, "can't start new thread"),
        (
            "rota.worker.processes.handler_child._BOOT",
            "import os; os._exit(1)",
            "the attempt's process exited with status 1",
        ),
    ],
    ids=["no program", "no threads", "no interpreter"],
)
async def test_a_job_whose_process_does_not_come_up_is_handed_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, target: str, instead: str, why: str
) -> None:
    """As when a deploy has just removed the interpreter, or under a limit of tasks, files or memory
    that the process runs into before anything of the application's has been done."""
    monkeypatch.setattr(target, f"{instead}\n{_BOOT}" if "_BOOT" in target else instead)
    held, _ = held_job("awaited")
    end = await pool.run(held)
    assert isinstance(end, HandedBack) and why in end.why
    assert held.began_at is None


@rule("M35")
async def test_a_process_that_does_not_get_ready_in_time_fails_its_attempt_which_had_not_begun(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_attempt, "START_S", 0.0)
    held, _ = held_job("awaited")
    end = await pool.run(held)
    assert isinstance(end, Errored) and "did not import its handler within 0 s" in str(end.error)
    assert held.began_at is None, "the time of an import is not the attempt's"


# One process


@rule("M33")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_copy_of_the_worker_that_outlives_it_keeps_no_process() -> None:
    """Such as the children of `multiprocessing` that a handler in a thread has left."""
    process = start_child("awaited")
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


@rule("M2", "M33")
async def test_what_a_process_sent_before_it_died_is_read_whatever_it_is_told_then() -> None:
    """Else a handler that has run would count as one that never began, and run again."""
    held, _ = held_job("fails", how="os._exit")
    process = start_child("fails")
    process.send(RunJob(held.job, pickle.dumps({"how": "os._exit"}), 60.0))
    # All its threads must have ended: only then is its end of the channel closed.
    await aeventually(lambda: process.has_exited)
    process.send(Stop("at once"))
    assert process.receive(10) == Begun()
    with pytest.raises(ProcessDied):
        process.receive(10)
    process.end()


# The worker as a process


@rule("M2", "M33")
def test_a_worker_that_is_killed_takes_its_processes_and_what_they_started_along(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path
) -> None:
    """Also one that lets no other thread run, and so could not end itself."""
    worker = start_worker(database, module="tests.worker.heavy", concurrency=1)
    put(connection, "holds the lock", place=str(tmp_path / "pids"))
    found = eventually(lambda: pids(tmp_path / "pids"))
    worker.kill()
    eventually(lambda: not any(lives(pid) for pid in found), 60, what="all are gone")


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.parametrize("guarded", [True, False])
def test_a_handler_of_the_main_module_is_found_if_importing_that_starts_no_worker(
    database: str, connection: Connection, tmp_path: Path, guarded: bool
) -> None:
    (tmp_path / "main.py").write_text(
        MAIN + ('if __name__ == "__main__": ' if guarded else "") + "app.drain()"
    )
    put(connection, "own")
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={**os.environ, "ROTA_DATABASE_URL": database},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [(stands, kind, message)] = rows(
        connection, "select status, error_type, last_error from rota.job"
    )
    if guarded:
        assert (stands, kind, message) == ("dead", "__main__.OwnError", "of the main module")
    else:
        assert (stands, kind) == ("failed", "rota.errors.UsageError")
        assert 'under `if __name__ == "__main__":`' in message


# What cannot run in a process is refused when the worker starts


def make_worker(jobs: rota.Jobs) -> Worker:
    spec = WorkerSpec(
        types={job_type.name: job_type._declaration for job_type in jobs.types.values()},
        release="hand-1",
        lease_s=120.0,
        declaration="[]",
        config=WorkerConfig(),
    )
    return Worker(Database(""), spec, Bus())


async def test_a_handler_that_no_other_process_can_run_is_refused_when_the_worker_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def local() -> None: ...

    class LocalError(Exception): ...

    nested, lambdas, unimportable = rota.Jobs(), rota.Jobs(), rota.Jobs()
    nested.job("nested", process=True)(local)
    lambdas.job("lambda", process=True)(lambda: None)
    unimportable.job("errors", process=True, retry_on=(LocalError,))(heavy.say)
    for jobs, name in ((nested, "nested"), (lambdas, "lambda"), (unimportable, "errors")):
        with pytest.raises(DeclarationError, match=f"job type '{name}': process=True needs"):
            make_worker(jobs)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigurationError, match="works on Linux only"):
        make_worker(heavy.jobs)


@rule("M83")
def test_what_a_handler_forks_ends_at_a_signal_and_where_it_leaves_the_handler(
    database: str, connection: Connection, start_worker: StartWorker
) -> None:
    start_worker(database, module="tests.worker.heavy")
    for name in ("forks", "forks here"):
        put(connection, name)
    for name, code in product(("leaves", "leaves here", "leaves the loop"), (0, 3)):
        put(connection, name, code=code)
    ended = "select array_agg(result::int order by id) from rota.jobs where status = 'succeeded'"
    eventually(lambda: value(connection, ended) == [-signal.SIGTERM] * 2 + [0, 3] * 3)
