"""Every block of middleware.md does what the page says."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from tests.docs.reader import read_page
from tests.support.rules import rule

PAGE = read_page("middleware.md")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@rule("M2")
def test_the_blocks_of_the_page_work_in_their_order(
    database: str, connection: psycopg.Connection[TupleRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    place = conninfo_to_dict(database)
    for variable, name in (("PGHOST", "host"), ("PGPORT", "port"), ("PGUSER", "user")):
        monkeypatch.setenv(variable, str(place[name]))
    monkeypatch.setenv("PGDATABASE", str(place["dbname"]))
    connection.execute("create table app_user (id int primary key, name text)")
    connection.execute("insert into app_user values (1, 'Ada'), (2, 'Bob')")

    names: dict[str, Any] = {}
    assert len(BLOCKS) == 4
    for block in BLOCKS:
        exec(block, names)  # the page is ours

    shop, rename = names["shop"], names["rename"]
    jobs = [rename.enqueue(id=1, name="Grace").id]
    connection.execute(
        "insert into rota.job (job_type, payload) values "
        "('rename', jsonb_build_object('id', 2, 'name', repeat('x', 10)))"
    )
    connection.execute("alter table app_user add check (length(name) < 10) not valid")
    shop.drain()
    assert shop.get(jobs[0]).status == "succeeded"
    assert [job.status for job in shop.find(status="failed")] == ["failed"]
    assert connection.execute("select name from app_user order by id").fetchall() == [
        ("Grace",),
        ("Bob",),
    ]
    assert names["site"]._arounds == [names["check_connections"]]  # tests/worker/test_django.py
    names["sessions"].kw["bind"].dispose()
    for app in (shop, names["app"]):
        app.close()
