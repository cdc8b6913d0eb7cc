"""The blocks of concepts.md work."""

from __future__ import annotations

import re

import psycopg
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import read_page

PAGE = read_page("concepts.md")
EXAMPLE, KEY, PENDING_KEY, DROPPED, IN_A_PROCESS = re.findall(
    r"```python\n(.*?)```", PAGE, re.DOTALL
)


def test_the_example_of_the_page_runs_its_job(database: str) -> None:
    app = rota.App(database)
    exec(EXAMPLE, {"app": app})  # the page is ours
    assert app.get(1).result == "hello Ada"
    app.close()


def test_the_refresh_of_the_page_is_dropped_once_its_time_has_passed(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    jobs = rota.Jobs()
    exec(DROPPED, {"jobs": jobs})  # the page is ours
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
        assert f"`{reason}`" in PAGE


def test_the_key_of_the_page_is_made_of_the_arguments(database: str) -> None:
    app = rota.App(database)
    exec(KEY, {"app": app})  # the page is ours
    assert app.get(1).idempotency_key == "welcome:42:short"
    app.close()


def test_the_index_job_of_the_page_has_a_key_until_it_starts() -> None:
    app = rota.Jobs()
    exec(PENDING_KEY, {"app": app, "rota": rota})  # the page is ours
    assert app.types["index"]._declaration.options.key_scope == "pending"


def test_the_handler_of_the_page_is_declared_as_it_says() -> None:
    jobs = rota.Jobs()
    exec(IN_A_PROCESS, {"jobs": jobs, "rota": rota})  # the page is ours
    [(name, declared)] = jobs.types.items()
    assert (name, declared._declaration.options.process is not None) == ("render_report", True)
