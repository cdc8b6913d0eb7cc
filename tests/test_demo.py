"""`rota demo` on a private server, which it starts and stops. CI runs `make demo` itself."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from signal import SIGSTOP

import psutil
import psycopg
import pytest

from rota import embedded
from tests.docs.reader import ROOT, Reader
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually

pytestmark = pytest.mark.system

WAIT_S = 60
PLAY_S = 280


@pytest.fixture
def rota(tmp_path: Path) -> CommandLine:
    directory = tmp_path / "our shop+"  # what a URL writes otherwise
    directory.mkdir()
    return CommandLine(directory, TMPDIR=str(directory), COLUMNS="80")


def processes(rota: CommandLine) -> list[psutil.Process]:
    """Return the demo's workers, and what is outside of the shop."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if {"story.processes", "story.outside"} & set(process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("TMPDIR") == str(rota.directory)
    ]


@pytest.mark.nightly
@rule("M20", "M33", "M44", "M50", "M52", "M54", "M63", "M70", "M71", "M72", "M80")
def test_it_keeps_its_promises_with_cron_and_each_select_is_as_it_says(rota: CommandLine) -> None:
    with rota.start("demo", "--cron", "--json") as process:
        out, err = process.communicate(timeout=PLAY_S)
    assert process.returncode == 0, out + err
    ran = json.loads(out)
    assert ran["ok"] and ran["checks"]
    url = embedded.start(rota.directory / ".rota")
    with psycopg.connect(url, dbname="rota_demo") as connection:
        for check in ran["checks"]:
            assert connection.execute(check["select"].encode()).fetchone(), check
    embedded.stop(rota.directory / ".rota")
    assert processes(rota) == [] and [path.name for path in rota.directory.iterdir()] == [".rota"]


@pytest.mark.nightly
def test_no_process_is_left_of_a_demo_that_is_killed_and_no_database_of_others_is_dropped(
    rota: CommandLine,
) -> None:
    with rota.start("demo") as demo:
        assert demo.stdout is not None
        assert any("5 sign up" in said for said in demo.stdout)
        demo.send_signal(SIGSTOP)
        assert len(processes(rota)) == 3
        status, said = rota("demo").error
        assert status == 3 and "another demo plays here" in said
        demo.kill()
    eventually(lambda: processes(rota) == [], WAIT_S, what="all noticed that the demo is gone")
    url = embedded.start(rota.directory / ".rota")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("comment on database rota_demo is 'mine'")
        status, said = rota("demo").error
        assert status == 3 and "there is one that is not its own" in said
        there = "select count(*) from pg_database where datname = 'rota_demo'"
        assert connection.execute(there).fetchone() == (1,)
    embedded.stop(rota.directory / ".rota")


def test_it_says_on_one_line_that_there_is_no_server(tmp_path: Path) -> None:
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert rota("demo").error[0] == 3


def test_it_uses_no_database_that_it_was_not_given(tmp_path: Path) -> None:
    assert not [name for name in os.environ if name.startswith("ROTA_")]
    assert CommandLine(tmp_path, DATABASE_URL="postgresql://elsewhere/")("demo").error[0] == 3


@pytest.mark.nightly
@rule("M20", "M50", "M54", "M72")
def test_a_reader_copies_the_example_and_follows_its_page(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    shutil.copytree(
        ROOT / "examples" / "saas", tmp_path, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns(".*", "story", "__pycache__"),
    )  # fmt: skip
    page = (
        (tmp_path / "README.md")
        .read_text()
        .replace("python3 -m venv .venv && . .venv/bin/activate\n", "")
    )
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        reader.follow(page)
        assert "14 passed" in reader.printed
