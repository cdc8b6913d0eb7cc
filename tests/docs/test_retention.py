"""docs/retention.md is held against the schema: a table that is missing from it fails here, and so does another default."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from tests.support.rules import rule

PAGE = (Path(__file__).parents[2] / "docs/retention.md").read_text()


@rule("M13")
def test_every_table_has_a_line_that_says_what_bounds_it(connection: psycopg.Connection[TupleRow]) -> None:
    lines = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE))
    tables = connection.execute(
        "select relname from pg_class where relnamespace = 'rota'::regnamespace and relkind in ('r', 'p') and not relispartition"
    ).fetchall()
    assert set(lines) == {name for (name,) in tables}
    kept: dict[str, timedelta] = dict(connection.execute("select what, keep from rota.retention").fetchall())
    assert lines["job_history"] == f"{kept['history'].days} days"
    assert lines["attempt"] == f"{kept['attempts'].days} days"
    assert lines["job"] == f"dead: {kept['dead'].days} days"
