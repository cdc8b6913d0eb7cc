"""The blocks of jobs-and-workers.md, and of the pages that its steps lead to, work."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import read_page

EXPIRY = read_page("expiry-and-cancelling.md")


def read_blocks(page: str) -> list[str]:
    """The blocks of Python of a page, which is ours."""
    return re.findall(r"```python\n(.*?)```", read_page(page), re.DOTALL)


def test_the_example_of_the_page_runs_its_job(database: str) -> None:
    app = rota.App(database)
    [example] = read_blocks("jobs-and-workers.md")
    exec(example, {"app": app})
    assert app.get(1).result == "hello Ada"
    app.close()


def test_the_refresh_of_the_page_is_dropped_once_its_time_has_passed(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    jobs = rota.Jobs()
    [dropped] = read_blocks("expiry-and-cancelling.md")
    exec(dropped, {"jobs": jobs})
    app = rota.App(database, jobs=[jobs])
    late = jobs.types["refresh_prices"].enqueue(shop=1).id
    connection.execute("update rota.job set expires_at = rota.clock()")
    assert app.drain().claimed == 0
    assert app.get(late).status == "cancelled"
    app.close()


def test_the_page_says_what_delayed_an_expired_job_in_the_words_of_the_server(
    connection: psycopg.Connection[TupleRow],
) -> None:
    connection.execute("insert into rota.job (job_type, expires_at) values ('x', now())")
    connection.execute("update rota.job set run_at = now() - interval '1 min'")
    for running in ([0], [5, 6]):
        connection.execute("delete from rota.worker")
        connection.execute(
            "insert into rota.worker "
            "(name, host, pid, version, release, job_types, queues, running, started_at) "
            "select n, 'h', 1, '1', '1', '{x}', '{\"default\": 1}', n, now() - interval '1 h' "
            "from unnest(%s::int[]) n",
            [running],
        )
        [[reason]] = connection.execute("select rota.expiry_reason(j) from rota.job j").fetchall()
        assert f"`{reason}`" in EXPIRY


def test_a_payload_of_the_version_before_is_converted_as_the_page_says(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    app = rota.App(database)
    [block] = read_blocks("payload-versions.md")
    exec(block, {"app": app, "Any": Any})
    app.sync()
    connection.execute(
        "insert into rota.job (job_type, payload, payload_version) values "
        """('charge', '{"order": 7, "euros": 1.5}', 1), """
        """('charge', '{"order": 7, "euros": 2}', null), """
        """('charge', '{"order": 7, "cents": 3}', 2)"""
    )
    app.drain()
    assert sorted(job.result for job in app.find(job_type="charge")) == [3, 150, 200]
    app.close()


def test_the_export_of_the_page_reports_its_progress(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.App(database)
    declared, read = read_blocks("progress.md")
    names: dict[str, Any] = {"app": app, "rota": rota, "write_page": lambda page: None}
    exec(declared, names)
    names["job_id"] = names["export"].enqueue(pages=40).id
    assert app.get(names["job_id"]).progress is None
    app.drain()
    exec(read, names)
    assert capsys.readouterr().out.startswith("40 of 40 pages, at 20")
    app.close()


def test_the_handler_of_the_page_is_declared_to_run_in_a_process() -> None:
    jobs = rota.Jobs()
    [declared] = read_blocks("cpu-work.md")
    exec(declared, {"jobs": jobs, "rota": rota})
    [(name, job_type)] = jobs.types.items()
    assert (name, job_type._declaration.options.process is not None) == ("render_report", True)
