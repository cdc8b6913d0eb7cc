"""retention.md, partitions.md and growing-tables.md are held against the schema: a table that is
missing fails here, and so does another default."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE, TABLES = read_page("retention.md"), read_page("growing-tables.md")
PARTITIONS = read_page("partitions.md")
BLOCK = re.compile(r"```(?:sh|sql)\n(.*?)```", re.DOTALL)


@rule("M13")
def test_every_table_has_a_line_that_says_what_bounds_it(
    connection: psycopg.Connection[TupleRow],
) -> None:
    written = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", TABLES, re.MULTILINE)
    lines = dict(written)
    assert len(lines) == len(written), "a table has two lines"
    tables = connection.execute(
        "select relname from pg_class where relnamespace = 'rota'::regnamespace "
        "and relkind in ('r', 'p') and not relispartition"
    ).fetchall()
    assert set(lines) == {name for (name,) in tables}
    kept: dict[str, timedelta] = dict(
        connection.execute("select what, keep from rota.retention").fetchall()
    )
    assert lines["job_history"] == f"{kept['history'].days} days"
    assert lines["attempt"] == f"{kept['attempts'].days} days"
    assert lines["job"] == f"dead: {kept['dead'].days} days"
    options = re.findall(r"^\| `--keep-(\w+)` \|.*\| (\d+) days \|$", PAGE, re.MULTILINE)
    assert {name: timedelta(days=int(days)) for name, days in options} == kept


@pytest.mark.system
@rule("M13")
def test_the_blocks_of_the_page_do_what_they_say(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    [command], (archive, grant) = BLOCK.findall(PAGE), BLOCK.findall(PARTITIONS)
    words = shlex.split(command, comments=True)
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    rota.ok(*words[1:])
    asked = {
        option.removeprefix("--keep-"): timedelta(days=int(days.removesuffix("d")))
        for option, days in zip(words[2::2], words[3::2], strict=True)
    }
    assert dict(connection.execute("select what, keep from rota.retention").fetchall()) == asked
    assert rota("migrate", "--archive", "kept", "--no-archive").status == 2
    assert rota("migrate", "--archive", "kept", "--check").status == 2
    rota.ok(*shlex.split(archive, comments=True)[1:])
    setting = "select archive from rota.installation"
    assert connection.execute(setting).fetchone() == ("rota_archive",)
    connection.execute(grant.replace("my_worker", "current_user").encode())
    rota.ok("migrate", "--no-archive")
    assert connection.execute(setting).fetchone() == (None,)
