"""`rota demo`, as `make demo` runs it: on a private server, which it starts and stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT

import psutil
import psycopg
import pytest

from rota import embedded
from scripts import drawings
from tests.docs.reader import ROOT, Reader
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROMISES = 24
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


def play(rota: CommandLine, *options: str) -> str:
    """Play the demo to its end, which on a busy machine takes minutes; return what it printed."""
    with rota.start("demo", *options) as process:
        out, err = process.communicate(timeout=PLAY_S)
    assert process.returncode == 0, out + err
    return out


@contextmanager
def held(rota: CommandLine, line: str, *options: str) -> Iterator[psutil.Process]:
    """A demo that has come as far as to print that line, suspended."""
    with rota.start("demo", *options, hears_ctrl_c=True) as process:
        assert process.stdout
        for said in process.stdout:
            if re.search(line, said):
                break
        else:
            raise AssertionError(f"the demo ended before it said {line!r}")
        demo = psutil.Process(process.pid)
        demo.suspend()
        try:
            yield demo
        finally:
            with suppress(psutil.NoSuchProcess):
                demo.resume()


def mask(text: str) -> str:
    """Return a text without its numbers and the breaks of its lines."""
    return re.sub(r"[\d,.]*\d", "0", " ".join(text.split()))


@rule("M20", "M33", "M44", "M50", "M52", "M54", "M63", "M70", "M71", "M72")
def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(rota: CommandLine) -> None:
    said = play(rota)
    assert f"{PROMISES} of {PROMISES} as expected" in said
    assert [line for line in said.splitlines() if len(line) > 80] == []
    for _, line in drawings.read_demo():  # which is what the picture of the README shows
        assert mask(line) in mask(said), f"make pictures: the demo does not say {line!r} any more"
    assert processes(rota) == [] and [one.name for one in rota.directory.iterdir()] == [".rota"]


@rule("M80")
def test_it_keeps_them_with_cron_too_and_each_select_is_as_it_says(rota: CommandLine) -> None:
    ran = json.loads(play(rota, "--cron", "--json"))
    assert ran["ok"] and len(ran["checks"]) == PROMISES
    url = embedded.start(rota.directory / ".rota")
    with psycopg.connect(url, dbname="rota_demo") as connection:
        for check in ran["checks"]:
            assert connection.execute(check["select"].encode()).fetchone(), check
    embedded.stop(rota.directory / ".rota")
    assert processes(rota) == []


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_no_process_is_left_when_the_demo_is_ended_half_way(rota: CommandLine, how: str) -> None:
    with held(rota, "5 sign up") as demo:
        assert len(processes(rota)) == 3
        getattr(demo, how)()
    eventually(lambda: processes(rota) == [], WAIT_S, what="all noticed that the demo is gone")


def test_it_stays_open_until_ctrl_c_and_names_a_promise_that_is_broken(rota: CommandLine) -> None:
    with rota.start("demo", "--open", hears_ctrl_c=True) as process:
        assert process.stdout
        for said in process.stdout:
            if "Sun 20:30" in said:
                break
        with psycopg.connect(rota.ok("db", "url").out.strip(), dbname="rota_demo") as connection:
            connection.execute("delete from outside.mail where recipient like 'new3@%'")
        said = "".join(iter(process.stdout.readline, "  rota doctor\n"))
        site, url = (re.findall(one, said)[0] for one in ("(http.*)/docs", "URL='(.*)'"))
        with urllib.request.urlopen(site + "/") as answer:
            assert answer.read() == b'{"users":65,"orders":10011}'
        with urllib.request.urlopen(site + "/admin/jobs/dead") as answer:
            assert b"import_contacts" in answer.read()
        looking = CommandLine(rota.directory, ROTA_DATABASE_URL=url)
        assert "import_contacts" in looking.ok("jobs", "--status", "dead").out
        process.send_signal(SIGINT)
        assert process.stderr
        assert process.wait(WAIT_S) == 1
        assert "Traceback" not in process.stderr.read()
    assert "WRONG  each who signed up got one welcome mail: 24, 24, expected 25, 25" in said
    assert f"{PROMISES - 1} of {PROMISES} as expected" in said
    assert processes(rota) == []


def test_it_drops_no_database_of_others_and_none_that_is_in_use(rota: CommandLine) -> None:
    with held(rota, "5 sign up") as demo:
        status, said = rota("demo").error
        assert status == 3 and "another demo plays here" in said
        demo.kill()
        eventually(lambda: processes(rota) == [], WAIT_S)
        with psycopg.connect(
            embedded.start(rota.directory / ".rota"), autocommit=True
        ) as connection:
            connection.execute("comment on database rota_demo is 'mine'")
            assert rota("demo").error == (
                3,
                "the demo makes the database rota_demo, and there is one that is not its own: "
                "rename it, or name another server in ROTA_DATABASE_URL",
            )
        embedded.stop(rota.directory / ".rota")


def test_it_says_on_one_line_that_there_is_no_server(tmp_path: Path) -> None:
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert rota("demo").error[0] == 3


def test_it_uses_no_database_that_it_was_not_given(tmp_path: Path) -> None:
    assert not [name for name in os.environ if name.startswith("ROTA_")]
    assert CommandLine(tmp_path, DATABASE_URL="postgresql://elsewhere/")("demo").error[0] == 3


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
        assert "14 passed" in reader.type("pytest")
