"""What the tests stand on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from tests.support import forked
from tests.support.databases import Databases
from tests.support.guard import locked, locked_one
from tests.support.order import spread
from tests.support.server import PostgresServer


def test_no_test_is_given_a_database_that_could_not_be_made(
    server: PostgresServer, admin: psycopg.Connection[TupleRow]
) -> None:
    template = sql.Identifier(name := f"template_{uuid4().hex[:12]}")
    admin.execute(sql.SQL("create database {}").format(template))
    with Databases(server.url(), name) as databases:
        with databases.one():
            pass
        admin.execute(sql.SQL("drop database {}").format(template))
        for _ in range(3):
            with suppress(psycopg.Error), databases.one() as made:
                assert (
                    admin.execute("select from pg_database where datname = %s", [made]).fetchone()
                    is not None
                )


STATE = """
import atexit, json, os, signal, sys, tempfile, threading
from pathlib import Path
atexit.register(print, "at exit")
threading.Timer(0.1, print, ["in a thread"]).start()
print(json.dumps({
    "arguments": (sys.argv, sys.orig_argv),
    "path": sys.path,
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "temporary": tempfile.gettempdir(),
    "descriptors": sorted(os.listdir("/dev/fd")),
    "signals": [str(signal.getsignal(one)).partition(" at ")[0] for one in signal.valid_signals()],
    "streams": [
        (type(one.buffer).__name__, one.encoding, one.errors, one.isatty(), one.seekable())
        + (one.line_buffering, one.write_through)
        for one in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "tests": [name for name in sys.modules if name.partition(".")[0] == "tests"],
    "main": [__name__, vars(sys.modules["__main__"]) is globals()],
}))
sys.exit(7)
"""


@pytest.mark.parametrize("option", ["-m", "-c"])
def test_a_fork_finds_and_ends_as_a_program_that_is_started(option: str, tmp_path: Path) -> None:
    (tmp_path / "state.py").write_text(STATE)
    command = [option, "state" if option == "-m" else STATE, "an argument", "--another"]
    environment = {**os.environ, "OWN": "\udcff", "TMPDIR": str(tmp_path)}
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path}
    fork = forked.run(command, **options)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forked.python(command, text=True, **streams, **options) as process:
        [state, *last] = process.communicate()[0].splitlines()
    assert (fork.returncode, fork.stderr, process.returncode) == (7, "", 7)
    assert fork.stdout.splitlines()[1:] == last == ["in a thread", "at exit"]
    assert json.loads(fork.stdout.splitlines()[0]) == json.loads(state)


def test_an_environment_that_asks_for_another_python_gets_it_started(tmp_path: Path) -> None:
    command = ["-c", "import sys; print('rota.cli' in sys.modules, sys.stdout.encoding)"]
    assert forked.run(command, env=os.environ, cwd=tmp_path).stdout == "True utf-8\n"
    other = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert forked.run(command, env=other, cwd=tmp_path).stdout == "False iso8859-1\n"


def test_a_fork_is_waited_for_and_ended_as_a_process_is(tmp_path: Path) -> None:
    reads = ["-c", "import sys; print('reads', flush=True); sys.stdin.read()"]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    for end, status in (("close", 0), ("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)):
        with forked.start(reads, env=os.environ, cwd=tmp_path, **streams) as process:
            assert process.stdout is not None and process.stdout.readline() == "reads\n"
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            getattr(process.stdin if end == "close" else process, end)()
            assert process.wait(60) == process.poll() == status
        process.kill()  # it has ended: no other process is hit


def test_rota_of_a_shell_ends_as_its_fork_does(tmp_path: Path) -> None:
    forked.write_rota(tmp_path)
    (tmp_path / "slow.py").write_text("import time; print('reads', flush=True); time.sleep(300)\n")
    rota = str(tmp_path / "rota")
    told = forked.run(["-m", "rota", "jobs", "--limit"], env=os.environ, cwd=tmp_path)
    for more in ({}, {"PYTHONIOENCODING": "latin-1"}):  # forked, and started
        asked = subprocess.run(
            [rota, "jobs", "--limit"],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (asked.returncode, asked.stdout, asked.stderr) == (2, told.stdout, told.stderr)
    with subprocess.Popen(
        [rota, "sync", "--app", "slow:app"], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"reads\n"
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("few", "part", "order"),
    [
        ("", 1.0, "abcdef"),
        ("XY", 1.0, "XabcYdef"),
        ("XY", 2 / 3, "XabYcdef"),
        ("TUVWXYZ", 1.0, "TaUbVcWdXeYfZ"),
    ],
)
def test_the_few_are_spread_evenly_among_the_many(few: str, part: float, order: str) -> None:
    assert "".join(spread(few, "abcdef", part)) == order


def test_of_several_locks_the_first_that_is_free_is_held(tmp_path: Path) -> None:
    first, other = (tmp_path / name for name in "ab")
    with (
        locked(first),
        locked_one([first, other]),
        other.open("a") as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with locked(other), locked(first):
        pass
