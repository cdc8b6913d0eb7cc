"""A schema of another name does all that `rota` does."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store import ops
from rota.store.migrate import migrate
from rota.store.statements import Statements
from tests.store.test_sql_headers import CALLED, NAMES


@pytest.fixture
def schema(empty_database: str) -> str:
    """A schema that is called as one of its tables."""
    migrate(empty_database, "job")
    return "job"


def test_every_statement_can_be_prepared_in_it(empty_database: str, schema: str) -> None:
    with psycopg.connect(empty_database) as connection:
        statements = Statements(schema)
        for name in [*NAMES, *CALLED]:
            assert b"rota." not in statements[name]
            # With NULLs, planned and not run: the server resolves every name and type.
            parameters = dict.fromkeys(_parameters(statements[name]))
            connection.execute(b"explain " + statements[name], parameters)


def _parameters(statement: bytes) -> list[str]:
    return [part.split(b")s")[0].decode() for part in statement.split(b"%(")[1:]]


def test_the_whole_way_of_a_job_from_insert_to_history_works_in_it(
    empty_database: str, schema: str
) -> None:
    app = rota.App(empty_database, schema=schema)

    @app.job("welcome", queue="email", priority=5, aliases=("greet",))
    def welcome(user: int) -> int:
        return user

    @app.job("fails", max_attempts=1)
    def fails() -> None:
        raise LookupError("no such thing")

    @app.job("snoozes")
    def snoozes() -> None:
        raise rota.Snooze("1h")

    @app.job("cancels")
    def cancels() -> None:
        raise rota.Cancel("not needed")

    app.sync()
    first = welcome.using(key="k").enqueue(user=1)
    assert welcome.using(key="k").enqueue(user=1) == rota.Enqueued(first.id, False, "queued")
    assert app.enqueue_many([welcome.using(key="k").new(2), fails.new(), snoozes.new()])[
        0
    ] == rota.Enqueued(first.id, False, "queued")
    cancels.using(key="c").enqueue()
    with psycopg.connect(empty_database, autocommit=True) as connection:
        _insert_plainly(connection, schema)
    report = app.drain()
    assert (report.claimed, report.succeeded, report.dead) == (5, 2, 1)
    assert {(job.job_type, job.status.value) for job in app.find()} == {
        ("welcome", "succeeded"), ("greet", "succeeded"), ("fails", "dead"), ("snoozes", "queued"),
        ("cancels", "cancelled"),
    }  # fmt: skip
    assert cancels.using(key="c").enqueue().created
    dead = app.find(status="dead")[0]
    assert [attempt.error_type for attempt in app._database.run(ops.attempts(dead.id))] == [
        "LookupError"
    ]
    app.close()


def _insert_plainly(connection: psycopg.Connection[TupleRow], schema: str) -> None:
    connection.execute(
        f"insert into {schema}.job (job_type, payload) values ('greet', '{{\"user\": 7}}')".encode()
    )
    row = connection.execute(
        f"select queue, priority from {schema}.jobs where job_type = 'greet'".encode()
    ).fetchone()
    assert row == ("email", 5)
