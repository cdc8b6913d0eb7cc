"""What a plain job costs: keys, effects and all that it does not use cost it nothing."""

from __future__ import annotations

import rota
from tests.store.work import Connection
from tests.support.rules import rule
from tests.support.wait import eventually

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
