"""Programs that are jobs: what is kept of them, and that none outlives its attempt."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota.declare.program import split_program
from rota.errors import DeclarationError
from rota.observe.events import JobCancelled, JobDead, JobSnoozed, JobSucceeded
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.process import lives
from tests.worker.table import Connection, put, rows, value

pytestmark = pytest.mark.system

STUBBORN = 'trap "" TERM; sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; while :; do wait; done'
"""A script that ignores SIGTERM, as does what it starts; the file gets both numbers."""
POLITE = 'trap "echo bye > {0}.bye; exit 1" TERM; sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}'
POLITE += "; while :; do wait; done"
END = (JobSucceeded, JobDead, JobSnoozed, JobCancelled)


class Ended(NamedTuple):
    """What is stored of a job."""

    status: str
    result: Any
    error: str | None
    stack: str | None


async def run(
    database: str,
    connection: Connection,
    program: str | list[str],
    meanwhile: Callable[[int], object] | None = None,
    **options: Any,
) -> Ended:
    """Run a program in a worker, call `meanwhile` with the job's id, and return what is stored."""
    jobs = rota.Jobs()
    jobs.command("it", program, **options)
    job = put(connection, "it")
    async with Hand(database, jobs) as hand:
        if meanwhile is not None:
            await hand.until(lambda: bool(hand.events))
            await asyncio.to_thread(meanwhile, job)
        await hand.until(lambda: any(isinstance(event, END) for event in hand.events))
    return ended(connection, job)


def until_written(file: Path) -> list[int]:
    """Wait until a script has said its numbers."""
    text = eventually(lambda: file.read_text() if file.exists() else "")
    return [int(word) for word in text.split()]


def are_gone(pids: list[int]) -> bool:
    return not any(map(lives, pids))


def ended(connection: Connection, job: int) -> Ended:
    """What is stored of a job."""
    found = rows(
        connection,
        "select status, result, last_error, (select stack from rota.attempt a where a.job = j.id) "
        "from rota.jobs j where id = %s",
        job,
    )
    return Ended(*found[0])


async def test_what_a_program_says_and_how_it_exits_is_what_its_job_comes_to(
    database: str, connection: Connection
) -> None:
    """It has one attempt, unless it says otherwise; one that cannot run is dead at once."""
    flood = "import sys; sys.stdout.buffer.write('é'.encode() * 200_000 + b'x'); print('end')"
    script = "import os; os.write(1, b'out \\xff\\0'); os.write(2, 'é\\n'.encode())"
    programs: dict[str, str | list[str]] = {
        "succeeds": [sys.executable, "-IS", "-c", script],
        "floods": [sys.executable, "-IS", "-c", flood],
        "fails": ["sh", "-c", "echo begins; echo no room >&2; exit 3"],
        "is killed": ["sh", "-c", "kill -s ABRT $$"],
        "is not there": "no-such-program --all",
        "is no program": "/etc/passwd",
    }
    jobs = rota.Jobs()
    for name, program in programs.items():
        options = {"max_attempts": 5} if name.startswith("is no") else {}
        jobs.command(name, program, **options)  # type: ignore[arg-type]
    ids = {name: put(connection, name) for name in programs}
    await Hand(database, jobs, drain=True).run()
    stored = {name: ended(connection, job) for name, job in ids.items()}
    output = "out \ufffd\ufffdé\n"
    assert stored["succeeds"] == ("succeeded", {"exit_status": 0, "output": output}, None, None)
    # The end is kept, and no character is cut in two.
    assert stored["floods"].result["output"] == "…" + "é" * ((4096 - 5) // 2) + "xend\n"
    for name, error in (
        ("fails", "sh exited with status 3: no room begins no room"),
        ("is killed", "sh was killed by SIGABRT"),
        ("is not there", "cannot run 'no-such-program': [Errno 2] No such file or directory: "),
        ("is no program", "cannot run '/etc/passwd': [Errno 13] Permission denied: "),
    ):
        assert stored[name].status == "dead" and str(stored[name].error).startswith(error), name
    read = "select verdict_rule from rota.attempt where job = %s"
    assert value(connection, read, ids["fails"]) == "exit status"
    assert str(stored["fails"].stack).rstrip().endswith("begins\nno room")


async def test_a_machine_without_a_free_process_uses_no_attempt(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("rota.declare.program.subprocess.Popen", refuse)
    stored = await run(database, connection, "true")
    assert stored.status == "queued"
    assert value(connection, "select attempts from rota.job") == 0


@rule("M35")
async def test_a_program_over_its_time_gets_a_signal_then_all_that_it_started_is_killed(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    program = ["sh", "-c", STUBBORN.format(tmp_path / "pids")]
    stored = await run(database, connection, program, timeout="1s")
    assert stored.status == "dead"
    assert stored.error == "the attempt ran longer than its timeout of 1 s"
    assert are_gone(until_written(tmp_path / "pids"))


async def test_a_cancelled_program_may_clean_up_before_it_is_killed(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    def cancel(job: int) -> None:
        until_written(tmp_path / "pids")
        connection.execute("select rota.job_cancel(array[%s::bigint], 'enough')", [job])

    program = ["sh", "-c", POLITE.format(tmp_path / "pids")]
    stored = await run(database, connection, program, cancel)
    assert stored.status == "cancelled"
    assert (tmp_path / "pids.bye").exists()
    assert are_gone(until_written(tmp_path / "pids"))


async def test_a_program_ends_when_its_output_is_closed_and_what_it_leaves_then_is_killed(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    still_writes = "(while [ ! -e go ]; do sleep 0.02; done; echo late) &"
    has_closed = "sleep 1000 > /dev/null 2>&1 & echo $! > pids;"
    script = f"cd {tmp_path}; echo early; {has_closed} {still_writes}"

    def let_go(_: int) -> None:
        until_written(tmp_path / "pids")
        (tmp_path / "go").touch()

    stored = await run(database, connection, ["sh", "-c", script], let_go)
    assert stored.result == {"exit_status": 0, "output": "early\nlate\n"}
    eventually(lambda: are_gone(until_written(tmp_path / "pids")))


@rule("M83")
def test_a_worker_that_stops_leaves_no_program_and_begins_the_job_no_second_time(
    start_worker: StartWorker,
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCRIPT", STUBBORN.format(tmp_path / "pids"))
    put(connection, "script")
    worker = start_worker(database, module="tests.worker.program_app", grace="0.2s")
    pids = until_written(tmp_path / "pids")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log
    assert are_gone(pids)
    assert rows(
        connection, "select status, attempts, last_error like 'the worker went down%' from rota.job"
    ) == [("dead", 1, True)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills with the parent")
def test_a_killed_worker_takes_its_programs_along(
    start_worker: StartWorker,
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCRIPT", STUBBORN.format(tmp_path / "pids"))
    put(connection, "script")
    worker = start_worker(database, module="tests.worker.program_app")
    pids = until_written(tmp_path / "pids")
    worker.kill()
    eventually(lambda: are_gone(pids))


@pytest.mark.nightly
def test_a_worker_that_was_started_ignoring_sigchld_takes_no_program_for_a_success(
    start_worker: StartWorker,
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCRIPT", "exit 0")
    put(connection, "script")
    start_worker(
        database,
        module="tests.worker.program_app",
        around=("env", "--ignore-signal=CHLD"),
    )
    eventually(lambda: value(connection, "select status from rota.jobs") == "dead")
    error = value(connection, "select last_error from rota.jobs")
    assert "its exit status is unknown" in str(error)


# Declarations


def test_a_command_has_a_schedule_one_attempt_and_the_options_of_a_job_type() -> None:
    app = rota.App("postgresql://nowhere")
    backup = app.command(
        "backup", "pg_dump -f '/b/a b' shop", schedule="0 3 * * *", timezone="Europe/Paris",
        timeout="1h", queue="night",
    )  # fmt: skip
    options = backup._declaration.options
    assert (options.max_attempts, options.timeout_s, options.queue) == (1, 3600, "night")
    assert (backup.name, backup.__doc__) == ("backup", "Run `pg_dump -f '/b/a b' shop`.")
    assert str(backup._declaration.place).startswith(__file__)
    [schedule] = app._own._schedules.values()
    assert (schedule.name, schedule.cron, schedule.timezone) == (
        "backup", "0 3 * * *", "Europe/Paris"
    )  # fmt: skip


def test_a_command_that_could_not_run_is_refused_where_it_is_written() -> None:
    wrongs: list[tuple[Any, dict[str, Any], str]] = [
        ("", {}, "program must be a text"),
        (["nice", 5], {}, "program must be a text"),
        (7, {}, "program must be a text"),
        ("echo 'open", {}, "No closing quotation"),
        (["echo", "a\0b"], {}, "NUL"),
        ("true", {"process": True}, "takes no process"),
        ("true", {"jitter": "1m"}, "jitter needs schedule="),
        ("true", {"schedule": "0 25 * * *"}, "hour"),
        ("true", {"timout": "1m"}, "did you mean timeout?"),
    ]
    for program, options, why in wrongs:
        with pytest.raises(DeclarationError, match="command 'it' at ") as refused:
            rota.Jobs().command("it", program, **options)
        assert why in str(refused.value) and f"{__file__}:" in str(refused.value)


def test_two_commands_of_one_name_are_refused_with_both_places() -> None:
    jobs = rota.Jobs()
    jobs.command("it", "true")
    with pytest.raises(DeclarationError, match=r"declared twice: at .*test_programs.* and at "):
        jobs.command("it", "false")


def test_words_are_split_as_a_shell_does_and_a_list_is_left_as_it_is() -> None:
    assert split_program("a 'b c' \"d\" e\\ f $G *") == ["a", "b c", "d", "e f", "$G", "*"]
    assert split_program(["sh", "-c", "a | b"]) == ["sh", "-c", "a | b"]
