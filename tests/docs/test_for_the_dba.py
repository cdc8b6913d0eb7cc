"""for-the-dba.md and vacuum.md: what they say of the schema is what a server says of it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.store import migrate as migrations
from rota.store.migrate import migrate
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.wait import eventually

PAGE, VACUUM = read_page("for-the-dba.md"), read_page("vacuum.md")
LARGE, REMOVE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
[SNAPSHOTS] = re.findall(r"```sql\n(.*?)```", VACUUM, re.DOTALL)
OURS = "relnamespace = 'rota'::regnamespace"
COUNTS = {
    "tables": f"pg_class where {OURS} and relkind in ('r', 'p') and not relispartition",
    "partitions": f"pg_class where {OURS} and relkind = 'r' and relispartition",
    "indexes": f"pg_class where {OURS} and relkind in ('i', 'I') and not relispartition",
    "views": f"pg_class where {OURS} and relkind = 'v'",
    "functions": "pg_proc where pronamespace = 'rota'::regnamespace",
    "definers": "pg_proc where pronamespace = 'rota'::regnamespace and prosecdef",
    "triggers": f"pg_trigger join pg_class c on c.oid = tgrelid where {OURS} and not tgisinternal",
    "sequences": f"pg_class where {OURS} and relkind = 'S'",
    "of job": "pg_index where indrelid = 'rota.job'::regclass",
}
CATALOGS = (
    "pg_class", "pg_proc", "pg_type", "pg_namespace", "pg_trigger", "pg_constraint", "pg_depend",
    "pg_description", "pg_default_acl", "pg_extension", "pg_event_trigger", "pg_cast",
    "pg_operator", "pg_publication",
)  # fmt: skip
Connection = psycopg.Connection[TupleRow]


def count(connection: Connection, what: str) -> int:
    row = connection.execute(f"select count(*) from {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


@rule("M13")
def test_the_table_of_what_is_created_is_what_the_server_has(connection: Connection) -> None:
    made = {what: count(connection, where) for what, where in COUNTS.items()}
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|.*\|$", PAGE, re.MULTILINE))
    said = {name: int(re.findall(r"\d+", rows[name])[0]) for name in rows.keys() & made.keys()}
    said["definers"] = int(re.findall(r"(\d+) are `SECURITY DEFINER`", PAGE)[0])
    said["of job"] = int(re.findall(r"`job`, the busy table, has (\d+)", PAGE)[0])
    assert said == made
    [later] = re.findall(r"about (\d+) later", PAGE)
    history, attempts = (
        _keep(connection, what) + 1 + 7 + 1 for what in ("history", "attempts")
    )  # the oldest day is half over, then today and a week
    assert abs(history + attempts - int(later)) < 10
    full = [
        table
        for (table,) in connection.execute(
            "select relname from pg_class where relreplident = 'f' and relkind in ('r', 'p') "
            "and not relispartition order by 1"
        )
    ]
    assert full == ["attempt", "batch_delta", "job_history"]
    assert all(f"`{table}`" in PAGE for table in full)


def _keep(connection: Connection, what: str) -> int:
    row = connection.execute(
        "select extract(epoch from keep) / 86400 from rota.retention where what = %s", [what]
    ).fetchone()
    assert row is not None
    return int(row[0])


@rule("M12")
def test_each_step_of_a_job_writes_the_rows_of_the_table(
    database: str, connection: Connection
) -> None:
    app = rota.App(database)

    @app.job
    def good() -> None: ...

    @app.job(retry=rota.Fixed("1h"))
    def bad() -> None:
        raise OSError("no route to host")

    @app.job(unique=lambda number: f"number:{number}")
    def keyed(number: int) -> None: ...

    app.drain()
    before = _written(connection)
    good.enqueue()
    app.drain()
    before = _wait(connection, before, {"job": (1, 1, 1), "job_history": (1, 0, 0)})
    bad.enqueue()
    app.drain()
    before = _wait(connection, before, {"job": (1, 2, 0), "attempt": (1, 0, 0)})
    keyed.enqueue(1)
    app.drain()
    _wait(
        connection,
        before,
        {"job": (1, 1, 1), "job_history": (1, 0, 0), "idempotency": (1, 1, 0)},
    )
    app.close()
    cost = PAGE.partition("## What a job costs")[2]
    assert re.findall(r"\d (?:INSERT|UPDATE|DELETE) (?:in|of) `\w+`", cost)[:4] == [
        "1 INSERT in `job`",
        "1 UPDATE of `job`",
        "1 DELETE in `job`",
        "1 INSERT in `job_history`",
    ]


Written = dict[str, tuple[int, int, int]]


def _written(connection: Connection) -> Written:
    """The rows inserted, updated and deleted in each table of jobs; a day counts as its table."""
    rows = connection.execute(
        r"select regexp_replace(relname, '_\d{8}$', ''), sum(n_tup_ins)::int, "
        "sum(n_tup_upd)::int, sum(n_tup_del)::int from pg_stat_user_tables "
        r"where relname ~ '^(job|idempotency|(job_history|attempt)_\d+)$' group by 1"
    ).fetchall()
    return {name: (inserted, updated, deleted) for name, inserted, updated, deleted in rows}


def _wait(connection: Connection, before: Written, wanted: Written) -> Written:
    """Wait until the sessions have reported these changes, and no others. What comes later is seen
    by the next wait."""
    eventually(
        lambda: _differ(before, _written(connection)) == wanted,
        what=f"{_differ(before, _written(connection))} becomes {wanted}",
    )
    return _written(connection)


def _differ(before: Written, after: Written) -> Written:
    return {
        name: (now[0] - was[0], now[1] - was[1], now[2] - was[2])
        for name, was in before.items()
        if (now := after[name]) != was
    }


@rule("M15")
@pytest.mark.parametrize(
    ("changed", "locked"),
    [
        ("name = ''", {}),
        ("name = 'job_claim'", {"definition": "RowExclusiveLock"}),
        ("name = 'jobs'", {"definition": "RowExclusiveLock", "jobs": "AccessExclusiveLock"}),
        (
            "name = 'job_insert_check (trigger)'",
            {"definition": "RowExclusiveLock", "job": "ShareRowExclusiveLock"},
        ),
    ],
    ids=["nothing", "function", "view", "trigger"],
)
def test_a_migration_locks_what_the_table_says(
    connection: Connection, changed: str, locked: dict[str, str]
) -> None:
    connection.execute(f"delete from rota.definition where {changed}".encode())
    with connection.transaction():
        migrations._apply(connection, "rota", ())
        held = connection.execute(
            "select relname, mode from pg_locks l join pg_class c on c.oid = l.relation "
            f"where pid = pg_backend_pid() and c.{OURS} and relkind in ('r', 'p', 'v') "
            "and mode not in ('AccessShareLock', 'RowShareLock')"
        ).fetchall()
        lock = connection.execute(
            "select classid::bigint from pg_locks where locktype = 'advisory' "
            "and pid = pg_backend_pid()"
        ).fetchone()
    assert dict(held) == locked
    assert lock == (1919906912,) and "1919906912" in PAGE


@rule("M15")
def test_what_is_printed_makes_the_schema_and_one_statement_leaves_nothing_behind(
    empty_database: str, tmp_path: Path
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        before = {catalog: count(connection, catalog) for catalog in CATALOGS}
        [command] = re.findall(r"```sh\n(.*?) > rota.sql\n```", PAGE)
        printed = CommandLine(tmp_path, ROTA_DATABASE_URL=empty_database).ok(*command.split()[1:])
        with connection.transaction():
            connection.execute(printed.out.encode())
        migrate(empty_database)
        app = rota.App(empty_database)

        @app.job
        def work() -> None: ...

        work.enqueue()
        app.drain()
        app.close()
        assert connection.execute(LARGE.encode()).fetchall() != []
        assert connection.execute(SNAPSHOTS.encode()).fetchall() == []
        connection.execute(REMOVE.encode())
        assert {catalog: count(connection, catalog) for catalog in CATALOGS} == before


@rule("M15")
def test_the_locks_of_the_removal_fit_the_page(connection: Connection) -> None:
    connection.execute("select rota.partitions_ensure(60)")
    with connection.transaction(force_rollback=True):
        connection.execute(REMOVE.encode())
        locks = count(connection, "pg_locks where pid = pg_backend_pid()")
    [said] = re.findall(r"about ([\d,]+) locks", PAGE)
    assert abs(locks - int(said.replace(",", ""))) < 300


def test_the_settings_of_the_live_table_are_those_of_the_page(connection: Connection) -> None:
    row = connection.execute(
        "select reloptions from pg_class where oid = 'rota.job'::regclass"
    ).fetchone()
    assert row is not None
    said = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", VACUUM, re.MULTILINE)
    assert sorted(f"{name}={value}" for name, value in said) == sorted(row[0])


def test_the_index_of_about_keeps_what_it_had_until_it_is_made_again(
    connection: Connection,
) -> None:
    sizes: list[int] = []

    def measure() -> None:
        [(size,)] = connection.execute("select pg_relation_size('rota.effect_about')").fetchall()
        sizes.append(int(size))

    # Ever new values take the place of those before.
    for first in range(0, 100_000, 20_000):
        connection.execute(
            "insert into rota.effect (key, job, claim, entry, if_uncertain, about) "
            "select n::text, 1, 1, 1, 'skip', jsonb_build_object('order', n) "
            "from generate_series(%s + 1, %s + 20000) n",
            [first, first],
        )
        connection.execute("delete from rota.effect")
        connection.execute("vacuum rota.effect")
        measure()
    [command] = re.findall(r"`(REINDEX INDEX [^`]+)`", VACUUM)
    connection.execute(command.encode())
    measure()
    first_size, *_, last_size, after = sizes
    assert last_size > 1.5 * first_size
    assert after < first_size / 10
