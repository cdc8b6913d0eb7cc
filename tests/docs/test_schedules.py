"""Every block of schedules.md, run-a-program.md and manage-schedules.md works, in this order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota import cli
from rota.declare.program import OUTPUT_BYTES_MAX, STOP_S
from rota.model.schedule import CATCH_UP_MAX, MISSED_S
from rota.upkeep.asker import LATE_S
from rota.upkeep.scheduler import Scheduler
from tests.docs.reader import read_page
from tests.support.project import enter
from tests.support.rules import rule

NAMES = ("schedules.md", "run-a-program.md", "manage-schedules.md")
PAGE = "".join(map(read_page, NAMES))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MAIL = """
@app.job("send_mail")
def send_mail(user_id: int) -> None: ...
"""


@rule("M10", "M15", "M87")
def test_every_block_of_the_pages_works_in_its_order(
    database: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    (tmp_path / "shop.py").write_text(BLOCKS[0][1] + MAIL)
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("ROTA_APP", "shop:app")
    names: dict[str, Any] = {}
    said: dict[str, str] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "schedules.md", "exec"), names)
            names["app"].sync()
        elif language == "sql":
            rows = [
                connection.execute(statement.encode())
                for statement in block.split(";\n")
                if statement.strip()
            ]
            said[block] = repr(rows[-1].fetchall() if rows[-1].description else None)
        else:
            for line in filter(None, (line.split("  #")[0].strip() for line in block.splitlines())):
                assert cli.run(shlex.split(line)[1:]) == 0, line
                said[line] = capsys.readouterr().out
    names["app"].close()

    left = [
        name
        for (name,) in connection.execute("select name from rota.schedule order by 1").fetchall()
    ]
    assert left == ["backup", "cleanup", "nightly-mail", "report-eu", "sweep"]
    assert "weekly-digest" in said["rota schedules"]
    assert (
        "Mon " in said["rota schedules show weekly-digest"]
        and "08:00 +0" in said["rota schedules show weekly-digest"]
    )
    verbs = connection.execute(
        "select verb from rota.action where schedule = 'weekly-digest' order by id"
    ).fetchall()
    assert [verb for (verb,) in verbs][:4] == ["pause", "trigger", "resume", "delete"]


def test_no_block_of_the_pages_goes_untried_and_their_numbers_are_the_code_s() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh", "sql"}
    assert PAGE.count("```") == 2 * len(BLOCKS) > 10
    assert f"at most {MISSED_S / 60:.0f} minutes late" in PAGE
    assert f"at most {CATCH_UP_MAX}: the latest hundred" in PAGE
    assert f"SIGKILL after {STOP_S:g} s" in PAGE
    assert f"the last {OUTPUT_BYTES_MAX // 1024} KiB" in PAGE
    assert Scheduler.asked_every_s + LATE_S <= 5 and "within 5 seconds" in PAGE
