"""The process of a command: its streams, and its end whatever threads the application has left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support import forked
from tests.support.cli import CommandLine
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
FULL = Path("/dev/full")

PROGRAM = """
import atexit, concurrent.futures, sys, threading
from rota import cli
from rota.cli import process

never = threading.Event().wait
{left}
sys.argv = {arguments}
cli.main()
"""


PRINTING = """
import os, rota
for descriptor in range(3):
    os.fstat(descriptor)  # a connection takes a number that is free
app = rota.App()
@app.job("quick")
async def quick():
    print("said")
"""


def ended(left: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a program that has left something running."""
    program = PROGRAM.format(left=left, arguments=arguments)
    return forked.run(["-c", program], env=os.environ, timeout=30)


@rule("M35", "M2")
@pytest.mark.parametrize(
    ("left", "arguments", "status"),
    [
        (
            "threading.Thread(target=never, name='hangs_0').start()",
            ["rota", "work", "--for", "5s"],
            2,
        ),
        (
            # As a handler does: threads of a daemon are daemons, and are waited for all the same
            # where they belong to a ThreadPoolExecutor.
            "pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix='hangs')\n"
            "thread = threading.Thread(target=pool.submit, args=[never], daemon=True)\n"
            "thread.start(); thread.join()",
            ["rota", "--version"],
            0,
        ),
    ],
    ids=["a thread", "an executor used by a daemon"],
)
def test_a_thread_that_does_not_end_does_not_keep_the_process(
    left: str, arguments: list[str], status: int
) -> None:
    ran = ended(f"process.LEAVE_S = 0.1\n{left}", arguments)
    assert ran.returncode == status
    assert "threads that do not end were left behind: hangs_0" in ran.stderr


@rule("M35", "M2")
def test_nor_where_the_command_ends_in_a_traceback() -> None:
    left = (
        "process.LEAVE_S = 0.1\ncli.run = lambda arguments: 1 / 0\n"
        "threading.Thread(target=never, name='hangs_0').start()"
    )
    ran = ended(left, ["rota", "work"])
    assert ran.returncode == 1 and "ZeroDivisionError" in ran.stderr
    assert "threads that do not end were left behind: hangs_0" in ran.stderr


def test_threads_that_end_are_waited_for_and_then_functions_at_exit_have_their_time() -> None:
    at_exit = """
def waiting():
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    return [timer for timer in timers if not timer.finished.is_set()]

atexit.register(lambda: print("at exit", waiting()))
process.LEAVE_S = 300.0

def ends():
    while not waiting():
        pass
    print("ended")

threading.Thread(target=ends).start()
"""
    ran = ended(at_exit, ["rota", "--version"])
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[1:] == ["ended", "at exit []"]


@pytest.mark.system
@pytest.mark.skipif(not FULL.exists(), reason="Linux has it")
def test_a_command_that_cannot_write_its_result_fails_and_says_why_unless_its_reader_has_gone(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) values ('send_mail')")

    def run(command: str, stdout: TextIO) -> subprocess.CompletedProcess[str]:
        return forked.run(
            ["-m", "rota", *command.split()],
            cwd=rota.directory,
            env=os.environ | rota.environment,
            stdout=stdout,
        )

    for command in ("jobs", "stats --json", "--help"):
        with FULL.open("w") as full:
            ran = run(command, full)
        assert ran.returncode != 0 and "No space left on device" in ran.stderr, command
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:  # as in `rota jobs | head`
            ran = run(command, pipe)
        assert (ran.returncode, ran.stderr) == (1, ""), command


@pytest.mark.nightly
@pytest.mark.system
def test_signs_that_the_encoding_of_stdout_lacks_are_escaped(
    shop: Path, database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, idempotency_key) values ('send_mail', 'ren\xe9\u2192')"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "rota", "job", "1"],
        cwd=shop,
        env=os.environ | {"ROTA_DATABASE_URL": database, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert r"ren\xe9\u2192" in ran.stdout.decode("ascii")


@pytest.mark.nightly
@rule("M2")
@pytest.mark.system
def test_a_drain_ends_well_where_what_started_it_closed_the_standard_streams(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(PRINTING)
    connection.execute("insert into rota.job (job_type) values ('quick')")
    command = [sys.executable, "-m", "rota", "work", "--drain", "--app", "shop:app"]
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=tmp_path,
        env=os.environ | {"ROTA_DATABASE_URL": database},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert connection.execute("select status from rota.jobs").fetchall() == [("succeeded",)]
