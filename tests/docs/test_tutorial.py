"""tutorial.md, followed by a reader to its end; and the example that is one file."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.reader import ROOT, Reader, read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = [pytest.mark.system, pytest.mark.slow]


@rule("M1", "M20", "M70", "M71", "M72")
def test_a_reader_of_the_tutorial_has_all_that_it_promises(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        reader.follow(read_page("tutorial.md"))


@rule("M80")
def test_one_file_and_one_line_of_cron_are_enough(empty_database: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "cron" / "night.py", tmp_path)
    said = (tmp_path / "night.py").read_text()
    old, new = tmp_path / "done" / "old.csv", tmp_path / "inbox" / "a.csv"
    for file in (old, new):
        file.parent.mkdir()
        file.write_text("1\n2\n")
        os.utime(file, (0, 0))
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database)
    migrate, drain, enqueue = re.findall(r"\brota ((?:migrate|work|enqueue)[^`\n]*)", said)
    rota.ok(*migrate.split())
    assert enqueue.startswith("enqueue take_in --payload '{")
    for _ in range(2):
        rota.ok("enqueue", "take_in", "--payload", '{"name": "a.csv"}', "--app", "night:app")
    rota.ok("schedules", "trigger", "nightly")
    assert rota.ok(*drain.split()).out.startswith("claimed 2, succeeded 2")
    assert not old.exists()
    assert (tmp_path / "done" / "a.csv").exists() is not new.exists()
    new.write_text("3\n")
    assert (
        "queued"
        in rota.ok("enqueue", "take_in", "--payload", '{"name": "a.csv"}', "--app", "night:app").out
    )
