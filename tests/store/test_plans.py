"""What the hot statements read, beside very many rows that are not theirs: index entries of their
own rows, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.model.job import Action, Job
from rota.store import ops
from rota.store.driver import Operation, Query
from tests.store.bulk import no_load_beside, without_indexes
from tests.store.rows import row
from tests.store.work import BEGINNING, FAIL, HAND_BACK, SUCCEED, Hand, act
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = pytest.mark.nightly

JOBS = 200_000
KNOWN, HELD, LOST = 20, 40, 10
WATCHED = ["job", "idempotency", "job_history", "attempt"]
START_BLOCKS, ROW_BLOCKS = 64, 40
"""What a statement may touch at most: to begin, which reads the first page of each index of a table
that it plans, and for each row that it handles.

To walk over all jobs of a kind costs more than that for HELD rows.
"""

PARTS = [
    "reaper", "expirer", "group sweeper", "wait sweeper", "limit planner", "batch folder",
    "scheduler", "figures",
]  # fmt: skip

# No statistics, as after a bulk load that autovacuum has not seen yet; `analysed` below makes them.
LOAD = """
alter table rota.job set (autovacuum_enabled = off);
alter table rota.idempotency set (autovacuum_enabled = off);
set session_replication_role = replica;
insert into rota.job (job_type, queue, priority, run_at)
  select 'unknown', 'default', 0, now() - interval '2 h' from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, status)
  select 't', 'default', 0, 'dead' from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, run_at)
  select 't', 'default', 0, now() + interval '1 day' from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, run_at)
  select 't', 'default', 0, now() - interval '1 h' from generate_series(1, {known});
insert into rota.job (job_type, queue, priority, run_at)
  select 't', 'default', 50, now() - interval '1 h' from generate_series(1, {known});
insert into rota.idempotency (job_type, key, job) select 't', 'k' || id, id from rota.job
  where status = 'dead' limit {jobs} / 5;
reset session_replication_role"""


@dataclass
class Cost:
    blocks: int
    whole_tables: dict[str, int]


class Large:
    """A database with very many jobs of each kind that no worker can take now."""

    def __init__(self, connection: psycopg.Connection[TupleRow], jobs: int) -> None:
        self.connection = connection
        self.hand = Hand(connection, priorities=[0])
        connection.execute("select rota.copy_check()")  # as a worker does before its first claim
        with without_indexes(connection, "rota.job"):
            connection.execute(LOAD.format(jobs=jobs, known=KNOWN).encode())
        self.held = self._hold("held", HELD)
        self._hold("lost", LOST)
        connection.execute(
            "update rota.job set locked_until = now() - interval '1 min' where queue = 'lost'"
        )

    def _hold(self, queue: str, count: int) -> list[Job]:
        self.connection.execute(
            "insert into rota.job (job_type, queue, priority) select 't', %s, 0 from "
            "generate_series(1, %s)",
            [queue, count],
        )
        # Held for as long as the test may take.
        return Hand(self.connection, queues=[queue], lease=timedelta(hours=1)).claim(count).jobs

    def cost(self, operation: Callable[[], Operation[Any]]) -> Cost:
        """Run the first statement of an operation six times, each time undone; what the cheapest of
        the last five read. The first plans, and DDL of other databases of the server may flush the
        catalog's cache before others: some hundred blocks then are the catalog's.
        """
        costs = [self._once(next(operation())) for _ in range(6)]
        return min(costs[1:], key=lambda cost: cost.blocks)

    def _once(self, query: Query) -> Cost:
        with self.connection.transaction(force_rollback=True):
            before = self._scans()
            statement = (
                b"explain (analyze, buffers, format json) "
                + self.hand.database.statements[query.name]
            )
            row = self.connection.execute(statement, query.params).fetchone()
            scans = {
                name: count - before[name]
                for name, count in self._scans().items()
                if count != before[name]
            }
        assert row is not None
        plan = row[0][0]["Plan"]
        return Cost(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], scans)

    def _scans(self) -> dict[str, int]:
        """Sequential scans of this transaction, partitions counted with their tables."""
        rows = self.connection.execute(
            "select coalesce(i.inhparent, s.relid)::regclass::text, sum(s.seq_scan)::int from "
            "pg_stat_xact_user_tables s "
            "left join pg_inherits i on i.inhrelid = s.relid where s.schemaname = 'rota' group by 1"
        ).fetchall()
        return {row[0]: row[1] for row in rows if row[0].removeprefix("rota.") in WATCHED}


@rule("M14", "M33", "M88")
def test_hot_statements_read_their_own_rows_only_among_very_many_before_and_after_analyze(
    connection: psycopg.Connection[TupleRow], server: PostgresServer
) -> None:
    with no_load_beside(server):
        _read_own_rows_only(Large(connection, JOBS))


def _read_own_rows_only(large: Large) -> None:
    for state in ("right after the load", "analysed"):
        if state == "analysed":
            large.connection.execute("analyze rota.job, rota.idempotency")
        for name, (operation, rows) in _hot(large).items():
            cost = large.cost(operation)
            assert cost.whole_tables == {}, f"{name}, {state}: reads whole tables"
            assert cost.blocks <= START_BLOCKS + ROW_BLOCKS * rows, (
                f"{name}, {state}: {cost.blocks} blocks for {rows} rows"
            )
    # The measure works: a claim without a frontier reads the unknown jobs, and that shows.
    assert large.cost(lambda: _claim(large.hand.who, 20, BEGINNING)).blocks > 4 * (
        START_BLOCKS + ROW_BLOCKS * 20
    )


def _claim(
    who: ops.Claimant,
    limit: int,
    after: datetime,
    *,
    behind_s: float = 0.25,
    known: dict[str, list[int]] | None = None,
) -> Operation[ops.Claimed]:
    branches = ops.Branches(
        [limit],
        [limit],
        [1],
        [0],
        [1],
        ["default"],
        [0],
        [after],
        [0],
        [timedelta(seconds=behind_s)],
    )
    return ops.claim(who, branches, {"default": BEGINNING}, known)


def _hot(large: Large) -> dict[str, tuple[Callable[[], Operation[Any]], int]]:
    """Every statement that producers and workers live on, and how many rows it handles."""
    who, held, now = large.hand.who, large.held, datetime.now(UTC)
    past_the_unknown = now - timedelta(minutes=90)
    waiting = [
        row[0]
        for row in large.connection.execute(
            "select id from rota.job where priority = 50"
        ).fetchall()
    ]
    keys = [
        row[0]
        for row in large.connection.execute("select key from rota.idempotency limit 20").fetchall()
    ]

    def ending(transition: Any) -> list[ops.Ending]:
        return [ops.Ending(job, transition, 0.1) for job in held]

    def new(key: str | None) -> ops.NewRow:
        return row(queue="default", priority=0, idempotency_key=key)

    return {
        "a claim that finds work": (lambda: _claim(who, 20, past_the_unknown), 20),
        "a claim that finds all there is": (lambda: _claim(who, 500, past_the_unknown), KNOWN),
        "a claim that finds nothing": (lambda: _claim(who, 500, now), 0),
        "a claim that probes": (
            lambda: _claim(who, 500, now, known={"default": [0], "empty": []}),
            0,
        ),
        "a look back": (lambda: _claim(who, 20, now, behind_s=4000), 20),
        "a renewal": (lambda: ops.renew([(job.id, job.claims) for job in held], who), HELD),
        "a finish": (lambda: ops.finish(ending(SUCCEED), "1"), HELD),
        "a failure": (lambda: ops.leave(ending(FAIL), "1"), HELD),
        "a hand-back": (lambda: ops.leave(ending(HAND_BACK), "1"), HELD),
        "the progress of jobs": (
            lambda: ops.progress([(job.id, job.claims, '{"done": 1}') for job in held]),
            HELD,
        ),
        "a cancel of jobs that run": (lambda: act(Action.CANCEL, *(job.id for job in held)), HELD),
        "a cancel of jobs that wait": (lambda: act(Action.CANCEL, *waiting), KNOWN),
        "a reap": (lambda: ops.reap(BEGINNING, 500), LOST),
        "a reap of nothing": (lambda: ops.reap(now - timedelta(seconds=1), 500), 0),
        "an expiry of nothing": (lambda: ops.expire("w", BEGINNING, 0, 500), 0),
        "upkeep of nothing": (
            lambda: ops.find_upkeep_due(json.dumps(dict.fromkeys(PARTS, now.isoformat()))),
            0,
        ),
        "archiving dead jobs": (lambda: ops.archive_dead(1000), 0),
        "forgetting keys": (lambda: ops.forget_rows("keys", 1000), 0),
        "the oldest due job": (ops.oldest_due, 4),
        "who holds a key": (lambda: _holders(keys), len(keys)),
        "an insert": (lambda: ops.insert(new(None)), 1),
        "an insert with a key": (lambda: ops.insert(new("fresh")), 1),
        "an insert whose key is taken": (lambda: ops.insert(new(keys[0])), 1),
        "a job by its id": (lambda: ops.find(ids=[held[0].id], limit=1), 1),
        "its attempts": (lambda: ops.attempts(held[0].id), 1),
    }


def _holders(keys: list[str]) -> Operation[None]:
    yield Query("key_holders", {"job_types": ["t"] * len(keys), "keys": keys})
