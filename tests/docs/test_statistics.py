"""Every block of search-jobs.md and statistics.md does what the page says, on a database of one's
own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule

PAGE = read_page("search-jobs.md") + read_page("statistics.md")
BLOCKS = re.findall(r"```(sh|python|sql)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.system
@rule("M85")
def test_the_page_works_as_it_stands(
    database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    app = rota.App(database, release="shop")

    @app.job("send_mail")
    def send_mail() -> None:
        raise rota.Dead("connection refused")

    connection.execute("select setval('rota.job_id_seq', 4711)")
    connection.execute(
        "insert into rota.job (id, job_type, queue, priority, idempotency_key, meta) "
        """values (4711, 'send_mail', 'default', 0, 'order-4711', '{"tenant": "acme"}')"""
    )
    app.drain()
    line = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    said = []
    for language, block in BLOCKS:
        if language == "sh":
            said += [
                (command, line.ok(*shlex.split(command)[1:]).out) for command in block.splitlines()
            ]
        elif language == "python":
            exec(block, {"app": app})  # the page is ours
        else:
            connection.execute(block.encode())
    assert len(BLOCKS) == 12 and len(said) == 13
    of = dict(said)
    assert (
        "4711" in of["rota jobs --type send_mail --status dead"]
        and "4711" in of['rota jobs --error "connection refused" --since 2h']
    )
    assert "4711" in of["rota jobs --key order-4711"]
    assert (
        "enqueued" in of["rota job 4711"]
        and "connection refused; fatal (raised Dead)" in of["rota job 4711"]
    )
    assert "Dead: connection refused" in of["rota errors"]
    app.close()
