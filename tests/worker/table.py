"""The jobs of a test, read and changed by SQL."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
from psycopg.rows import TupleRow

from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]


def rows(connection: Connection, query: str, *params: object) -> list[TupleRow]:
    """Run a query."""
    return connection.execute(query.encode(), params or None).fetchall()


def value(connection: Connection, query: str, *params: object) -> object:
    """Run a query that gives one value."""
    [(found,)] = rows(connection, query, *params)
    return found


def put(connection: Connection, job_type: str, **payload: object) -> int:
    """Insert a job the plain way; return its id."""
    [(id_,)] = rows(
        connection,
        "insert into rota.job (job_type, payload) values (%s, %s::jsonb) returning id",
        job_type,
        json.dumps(payload),
    )
    return int(id_)


def put_many(connection: Connection, job_type: str, count: int) -> None:
    """Insert as many in one statement."""
    connection.execute(
        "insert into rota.job (job_type) select %s from generate_series(1, %s)", [job_type, count]
    )


def status(connection: Connection, job: int) -> str:
    """Where a job stands."""
    return str(value(connection, "select status from rota.jobs where id = %s", job))


def expire_leases(connection: Connection) -> None:
    """Let the leases of all running jobs be over: what the reaper then meets is what a lease's time
    would have led to, which a test need not wait for."""
    connection.execute(
        "update rota.job set locked_until = clock_timestamp() - interval '1 millisecond' "
        "where status = 'running'"
    )


def leave_behind(connection: Connection, job: int) -> None:
    """Let it be a job whose worker is gone, and whose lease has been over for an hour."""
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'gone', claims = 1, attempts = 1, "
        "locked_until = rota.clock() - interval '1 h' where id = %s",
        [job],
    )


def over(connection: Connection) -> int:
    """How many jobs are over."""
    [(count,)] = rows(connection, "select count(*) from rota.job_history")
    return int(count)


def until_asked(
    connection: Connection, role: str, times: int, *, unless: Callable[[], bool] = lambda: False
) -> None:
    """Wait until the workers' connection of that role has begun so many statements from now on: all
    but the last are answered, one after the other. Or until `unless` holds."""
    begun: set[object] = set()
    query = (
        "select query_start from pg_stat_activity where datname = current_database() "
        "and application_name = %s"
    )

    def enough() -> bool:
        begun.update(rows(connection, query, f"rota {role}"))
        return len(begun) > times or unless()

    eventually(enough, 60, what=f"{times} statements of {role}")


def connected(connection: Connection, role: str) -> list[int]:
    """The backends of the workers' connections of that role."""
    query = (
        "select pid from pg_stat_activity where datname = current_database() "
        "and application_name = %s order by pid"
    )
    return [int(pid) for (pid,) in rows(connection, query, f"rota {role}")]
