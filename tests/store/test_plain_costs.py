"""What a plain job costs: keys, effects and all that it does not use cost it nothing. And what each
job of a bulk costs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store.statements import Statements
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]

JOBS = 300
WRITTEN = {"job": (JOBS, JOBS, JOBS), "history": (JOBS, 0, 0)}
"""Rows inserted, updated and deleted: the INSERT, the claim, and the finish that moves the row."""
UPKEEP = {
    "alert_rule", "definition", "installation", "job_type", "migration", "queue", "release",
    "stat_hour", "stat_rollup", "worker",
}  # fmt: skip
"""What a drain reads and writes for itself."""


@rule("M2", "M13")
def test_a_plain_job_touches_its_own_rows_and_no_other_table(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)

    @app.job("plain")
    def plain() -> None: ...

    app.sync()
    before = written(connection)
    plain.enqueue_many([{}] * JOBS)
    assert app.drain().succeeded == JOBS
    app.close()
    # The server counts what a connection did when that ends.
    eventually(
        lambda: WRITTEN.items() <= difference(before, written(connection)).items(),
        what="the server has counted all",
    )
    counted = difference(before, written(connection))
    assert {table: rows for table, rows in counted.items() if table not in UPKEEP} == WRITTEN


def written(connection: Connection) -> dict[str, tuple[int, int, int]]:
    """Rows inserted, updated and deleted so far, by table; the days of history are one."""
    connection.execute("select pg_stat_clear_snapshot()")
    counted: dict[str, tuple[int, int, int]] = {}
    for table, *rows in connection.execute(
        "select relname, n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables "
        "where schemaname = 'rota'"
    ):
        name = "history" if table.startswith("job_history") else table
        old = counted.get(name, (0, 0, 0))
        counted[name] = (old[0] + rows[0], old[1] + rows[1], old[2] + rows[2])
    return counted


def difference(
    before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]
) -> dict[str, tuple[int, int, int]]:
    grown = {
        table: (rows[0] - before[table][0], rows[1] - before[table][1], rows[2] - before[table][2])
        for table, rows in after.items()
    }
    return {table: rows for table, rows in grown.items() if rows != (0, 0, 0)}


@rule("M51")
def test_a_bulk_with_keys_calls_no_function_of_the_server_for_each_job(
    connection: Connection, app: rota.App
) -> None:
    keyed = app.job("keyed")(lambda: None)
    with connection.transaction():
        connection.execute("set local track_functions = 'pl'")
        app.enqueue_many(
            [keyed.using(key=f"{n}").new() for n in range(JOBS)], connection=connection
        )
        called = connection.execute(
            "select funcname, calls from pg_stat_xact_user_functions where calls > 2"
        ).fetchall()
    assert called == []


@rule("M45")
def test_a_search_asks_once_what_is_hidden_where_nothing_is(
    connection: Connection, app: rota.App
) -> None:
    plain = app.job("plain")(lambda: None)
    app.enqueue_many([plain.new() for _ in range(JOBS)])
    search = Statements("rota")["job_search"]
    parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", search.decode()))
    calls = "select calls from pg_stat_xact_user_functions where funcname = 'hidden_fields'"
    with connection.transaction():
        connection.execute("set local track_functions = 'all'")
        found = connection.execute(search, {**parameters, "limit": JOBS}).fetchall()
        assert connection.execute(calls).fetchall() == [(1,)]
    assert len(found) == JOBS


@rule("M14", "M51")
def test_a_bulk_with_keys_reads_no_others_also_in_a_session_that_began_with_none(
    connection: Connection, app: rota.App
) -> None:
    keyed = app.job("keyed")(lambda: None)

    def enqueue(prefix: str) -> None:
        jobs = [keyed.using(key=f"{prefix} {n}").new() for n in range(JOBS)]
        app.enqueue_many(jobs, connection=connection)

    for turn in range(8):  # until every plan is kept
        enqueue(f"{turn}")
    connection.execute(
        "insert into rota.idempotency (job_type, key, job) "
        "select 'keyed', 'other ' || n, n from generate_series(1, 20000) n"
    )
    with connection.transaction():
        enqueue("last")
        read = connection.execute(
            "select seq_tup_read from pg_stat_xact_user_tables where relname = 'idempotency'"
        ).fetchone()
    assert read == (0,)


BULK = 1_000
CALLS = {
    "alike": 12,
    "mappings": 15,
    "with keys": 23,
    "with keys, each of a copy of the type": 26,
    "with keys of the type": 27,
}
"""Calls of Python and C for each job of a bulk, from its arguments to its result."""


@rule("M21")
@pytest.mark.parametrize("way", CALLS)
def test_a_job_of_a_bulk_costs_few_calls(app: rota.App, way: str) -> None:
    @app.job("plain")
    def plain(n: int) -> None: ...

    @app.job("keyed", unique=lambda n: f"{n}")
    def keyed(n: int) -> None: ...

    ways: dict[str, Callable[[range], object]] = {
        "alike": lambda numbers: app.enqueue_many([plain.new(n=n) for n in numbers]),
        "mappings": lambda numbers: plain.enqueue_many([{"n": n} for n in numbers]),
        "with keys": lambda numbers: app.enqueue_many(
            [plain.new(n=n).using(key=str(n)) for n in numbers]
        ),
        "with keys, each of a copy of the type": lambda numbers: app.enqueue_many(
            [plain.using(key=f"copy {n}").new(n=n) for n in numbers]
        ),
        "with keys of the type": lambda numbers: app.enqueue_many(
            [keyed.new(n=n) for n in numbers]
        ),
    }
    ways[way](range(BULK))  # connects, reads the SQL
    count = count_calls(lambda: ways[way](range(BULK, 2 * BULK)))
    # What the bulk costs beside its jobs is less than a call for each.
    assert count // BULK <= CALLS[way]


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions this thread calls for some work, those in C too."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
