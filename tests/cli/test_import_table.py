"""`rota import-table`: jobs of somebody's own queue move into Rota's tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.client import import_table as tables
from rota.client.session import Session
from rota.store.db import Database
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

DEFINITIONS_AND_RUNS = """
create table job_definitions (
  id bigserial primary key, job_type text not null, payload jsonb not null default '{}',
  schedule text, max_attempts int not null default 5
);
create table job_runs (
  id bigserial primary key, definition_id bigint references job_definitions (id),
  job_type text not null, payload jsonb not null default '{}', run_at timestamptz not null,
  status text not null, attempts int not null default 0, max_attempts int not null default 5,
  locked_by text, locked_until timestamptz, last_error text, idempotency_key text,
  created_at timestamptz default now(), updated_at timestamptz default now()
);
insert into job_definitions (job_type, schedule) values ('digest', '0 2 * * *'), ('mail', null);
insert into job_runs (job_type, payload, run_at, status, attempts, locked_until, idempotency_key)
values
  ('mail', '{"n": 1}', now() + interval '1 day', 'queued', 0, null, 'one'),
  ('mail', '{"n": 2}', now(), 'failed', 2, null, null),
  ('mail', '{"n": 3}', now(), 'failed', 5, null, null),
  ('mail', '{"n": 4}', now(), 'succeeded', 1, null, 'four'),
  ('mail', '{"n": 5}', now(), 'running', 1, now() - interval '1 minute', null),
  ('mail', '{"n": 6}', now(), 'running', 1, now() + interval '1 hour', null),
  ('mail', '{"n": 7}', now(), 'parked', 0, null, null),
  ('mail', '[8]', now(), 'queued', 0, null, null),
  ('digest', '{"n": 9}', now() + interval '3 days', 'queued', 0, null, null);
"""
NEXT_RUN_AT = """
create table jobs (
  id bigserial primary key, job_type text not null, payload jsonb not null,
  status text not null default 'queued', attempts int not null default 0,
  next_run_at timestamptz not null default now(), locked_at timestamptz, locked_by text,
  last_error text, created_at timestamptz not null default now()
);
insert into jobs (job_type, payload, status, locked_at, last_error) values
  ('mail', '{"n": 1}', 'done', null, null), ('mail', '{"n": 2}', 'failed', null, 'Boom'),
  ('mail', '{"n": 3}', 'running', now() - interval '2 hours', null);
"""


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def found(connection: Connection) -> dict[int, tuple[Any, ...]]:
    """What Rota has: status and attempts of each job, by the number in its payload."""
    rows = connection.execute("select payload ->> 'n', status, attempts from rota.jobs").fetchall()
    assert len(rows) == len({row[0] for row in rows})
    return {int(row[0]): row[1:] for row in rows}


@rule("M2", "M51")
def test_runs_move_by_what_their_status_means_and_the_rest_stays_and_is_named(
    connection: Connection, rota: Here
) -> None:
    connection.execute(DEFINITIONS_AND_RUNS)
    command = ["import-table", "job_runs", "--definitions", "job_definitions"]
    said = rota.ok(*command).out
    assert found(connection) == {}
    assert "status parked is not known" in said and "payload must be a JSON object" in said
    rota.ok(*command, "--apply", "--status", "parked=cancelled")
    assert found(connection) == {
        1: ("queued", 0), 2: ("failed", 2), 3: ("dead", 5), 4: ("succeeded", 1), 5: ("queued", 1),
        7: ("cancelled", 0), 9: ("queued", 0),
    }  # fmt: skip
    left = connection.execute("select payload::text from job_runs order by id").fetchall()
    assert left == [('{"n": 6}',), ("[8]",)]
    after_planned = "select next_run_at > now() + interval '3 days' from rota.schedule"
    assert connection.execute(after_planned).fetchall() == [(True,)]
    for key in ("one", "four"):
        inserted = connection.execute(
            "insert into rota.job (job_type, idempotency_key) values ('mail', %s)", [key]
        )
        assert inserted.rowcount == 0


def test_a_table_with_other_names_is_read_by_a_map(connection: Connection, rota: Here) -> None:
    connection.execute(NEXT_RUN_AT)
    connection.execute(
        "alter table jobs rename job_type to what; alter table jobs add text_of text"
    )
    assert "--map job_type=" in rota("import-table", "jobs").err
    rota.ok("import-table", "jobs", "--map", "job_type=what", "--apply")
    assert found(connection) == {1: ("succeeded", 0), 2: ("dead", 0), 3: ("queued", 0)}


@rule("M2")
def test_a_move_that_is_cut_off_goes_on_where_it_was(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute(NEXT_RUN_AT + "truncate jobs;")
    connection.execute(
        "insert into jobs (job_type, payload) "
        "select 'mail', jsonb_build_object('n', n) from generate_series(1, 100) n"
    )
    monkeypatch.setattr(tables, "BATCH", 30)
    session = Session(Database(database), connection)
    _, columns = session.run(tables.read_columns("jobs"))
    spec = tables.make_spec(tables.map_columns(columns, {}), {}, None, 1)
    first = session.run(tables.move("public.jobs", spec, tables.FIRST_PLACE), atomic=True)
    assert first.last_place is not None
    with psycopg.connect(database) as other:  # a worker has begun a row; a batch is rolled back
        other.execute("select from jobs where payload ->> 'n' = '100' for update")
        with connection.transaction(force_rollback=True):
            session.run(tables.move("public.jobs", spec, first.last_place))
        assert len(found(connection)) == 30
        place: str | None = tables.FIRST_PLACE
        while place is not None:
            place = session.run(tables.move("public.jobs", spec, place), atomic=True).last_place
    assert set(found(connection)) == set(range(1, 100))
    assert connection.execute("select payload from jobs").fetchall() == [({"n": 100},)]


@rule("M2")
def test_what_an_old_producer_inserts_into_the_view_becomes_a_job(
    connection: Connection, rota: Here
) -> None:
    connection.execute(
        NEXT_RUN_AT + "create role old_producer; grant insert on jobs to old_producer;"
    )
    connection.execute("grant usage on sequence jobs_id_seq to old_producer")
    command = ["import-table", "jobs", "--apply", "--leave-view", "--json"]
    connection.execute("update jobs set locked_at = now() where status = 'running'")
    assert "a worker still has rows" in rota(*command).err
    connection.execute("update jobs set status = 'queued'")
    assert json.loads(rota.ok(*command).out)["kept"] == "public.jobs_before_rota"
    connection.execute("set role old_producer")
    connection.execute("""insert into jobs (job_type, payload) values ('mail', '{"n": 4}')""")
    connection.execute("reset role; drop owned by old_producer; drop role old_producer")
    assert found(connection)[4] == ("queued", 0)


@rule("M3")
def test_a_claim_written_by_hand_is_refused_with_what_to_call(connection: Connection) -> None:
    connection.execute("insert into rota.job (job_type) values ('mail')")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"call rota\.claim"):
        connection.execute(
            "update rota.job set status = 'running', attempts = attempts + 1, locked_by = 'me', "
            "locked_until = now() + interval '2 minutes'"
        )


@rule("M2")
@pytest.mark.parametrize(
    "odd",
    [
        "create table part () inherits (jobs)",
        "create table line (job bigint references jobs (id) on delete cascade)",
        "create function keep() returns trigger language plpgsql as 'begin return null; end'; "
        "create trigger keep before delete on jobs for each row execute function keep()",
    ],
)
def test_a_table_whose_rows_cannot_go_alone_is_refused(
    connection: Connection, rota: Here, odd: str
) -> None:
    connection.execute(NEXT_RUN_AT)
    connection.execute(odd.encode())
    assert rota("import-table", "jobs", "--apply").status == 2
    assert found(connection) == {}
    assert connection.execute("select count(*) from jobs").fetchone() == (3,)
