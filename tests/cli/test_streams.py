"""What becomes of a command's words where they do not fit, or there is no room for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.cli.streams import escape_what_does_not_fit
from tests.support import forked
from tests.support.cli import CommandLine

pytestmark = pytest.mark.system

Connection = psycopg.Connection[TupleRow]
FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="Linux has it")


def ran(rota: CommandLine, *arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | rota.environment
    return forked.run(["-m", "rota", *arguments], cwd=rota.directory, env=environment, **streams)


@full
@pytest.mark.parametrize(
    "command", ["jobs", "stats", "top --once", "migrate --sql", "crontab", "--help"]
)
def test_a_full_stdout_is_one_sentence(rota: CommandLine, command: str) -> None:
    with FULL.open("w") as stdout:
        told = ran(rota, *command.split(), stdout=stdout)
        as_json = ran(rota, "stats", "--json", stdout=stdout)
    assert (told.returncode, told.stderr) == (
        1,
        "rota: what it has to say cannot be written to stdout: [Errno 28] No space left on device\n",
    )
    assert as_json.returncode == 1 and json.loads(as_json.stderr)["error"]["type"] == "OSError"


@full
def test_a_full_stderr_changes_no_exit_status(rota: CommandLine) -> None:
    with FULL.open("w") as stderr:
        done = ran(rota, "work", "--drain", stderr=stderr)
        failed = ran(rota, "job", "1", stderr=stderr)
    assert (done.returncode, failed.returncode) == (0, 2)
    assert done.stdout.startswith("claimed 0,")


@pytest.mark.parametrize(
    ("encoding", "key"), [("ascii", r"ren\xe9\u2192"), ("latin-1", "ren\xe9\\u2192")]
)
def test_signs_that_the_encoding_of_stdout_lacks_are_escaped(
    rota: CommandLine,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    encoding: str,
    key: str,
) -> None:
    connection.execute(
        "insert into rota.job (job_type, idempotency_key) values ('send_mail', 'ren\xe9\u2192')"
    )
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    for command in ("job 1", "top --once", "doctor", "jobs"):
        out = subprocess.run(
            [sys.executable, "-m", "rota", *command.split()],
            cwd=rota.directory,
            env=os.environ | rota.environment,
            capture_output=True,
            check=False,
        )
        assert b"Traceback" not in out.stderr and out.stdout, out
        assert command != "job 1" or key in out.stdout.decode(encoding)


def test_what_is_no_text_in_a_path_is_printed_as_the_bytes_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        escape_what_does_not_fit()
        stdout.write(os.fsdecode(b"a\xff\xc3\xa9"))
    assert (tmp_path / "out").read_bytes() == b"a\xff\xc3\xa9"
