"""What decisions about lanes and caps read: entries of their own lanes, however many there are."""

from __future__ import annotations

import pytest

from tests.store.bulk import without_indexes
from tests.store.cost import count_blocks
from tests.store.work import Connection
from tests.support.rules import rule

MANY = 20_000
BLOCKS = 400
"""What a decision may touch at most, with the first plans of the session; a look at each of the
20,000 jobs of one kind would cost many times that."""

LOAD = f"""
alter table rota.job set (autovacuum_enabled = off);
set session_replication_role = replica;
insert into rota.job (job_type, queue, priority, run_at, group_key, status)
  select 't', 'default', 0, now() - interval '1 h', 'big', 'waiting'
  from generate_series(1, {MANY});
insert into rota.job (job_type, queue, priority, run_at, group_key)
  select 't', 'default', 50, now() + interval '1 day', 'big' from generate_series(1, {MANY});
insert into rota.job (job_type, queue, priority, run_at, group_key)
  select 't', 'other', 0, now() - interval '1 h', 'lane ' || n from generate_series(1, {MANY}) n;
insert into rota.job (job_type, queue, priority, run_at, status, waits_for)
  select 't', 'other', 0, now() - interval '1 h', 'waiting', 'type t'
  from generate_series(1, {MANY});
insert into rota.job (job_type, queue, priority, run_at, group_key, status)
  select 't', 'other', 0, now() + interval '1 day', 'zone ' || n, 'waiting'
  from generate_series(1, 20) n;
insert into rota.job (job_type, queue, priority, run_at, group_key, status, in_lane, locked_by,
  locked_until)
  values ('t', 'default', 0, now(), 'big', 'running', true, 'w', now() + interval '1 h');
reset session_replication_role"""


@pytest.mark.nightly
@rule("M14", "M60")
def test_decisions_read_the_first_entries_of_a_lane_or_a_line_only(connection: Connection) -> None:
    with without_indexes(connection, "rota.job"):
        connection.execute(LOAD.encode())
    claim = "select * from rota.claim('other', '{t}', 'w', 5)"
    connection.execute(claim.encode())
    # Other tests make databases: a server that is behind with that reads its catalogs once more.
    assert min(blocks(connection, claim) for _ in range(3)) <= BLOCKS
    connection.execute("insert into rota.job_type (name, max_running) values ('t', 1)")
    calls = {
        "heads": "select * from rota.lane_heads(array['big', 'lane 7', 'nothing'])",
        "next": "select * from rota.lane_next('big')",
        "promote": "select rota.lanes_promote(array['big', 'lane 7'])",
        "sweep": "select * from rota.rooms_sweep('', 15, true)",
        "sweep on": "select * from rota.rooms_sweep('group big', 15, false)",
        "caps": "select rota.cap_free('type t')",
        "release": "select rota.cap_release('type t', 1, true)",
    }
    for state in ("right after the load", "analysed"):
        if state == "analysed":
            connection.execute("analyze rota.job")
        for name, call in calls.items():
            connection.execute(call.encode())  # plans
            assert blocks(connection, call) <= BLOCKS, f"{name}, {state}"


def blocks(connection: Connection, call: str) -> int:
    with connection.transaction(force_rollback=True):
        return count_blocks(connection, call)
