"""Four spikes of fifty thousand jobs each in one table: what the statements of a worker cost
beside them is what they cost on an empty table.

Each spike is a queue of its own with some jobs to do among it; the queue `small` has the jobs and
no spike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import rota
from rota.model.job import Job
from rota.observe.events import Bus
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.worker.claimer import Claimer
from tests.conftest import _execute, _is_there
from tests.store.bulk import no_load_beside, without_indexes
from tests.store.planned import move_clock
from tests.store.work import BEGINNING, FAIL, Connection, Hand
from tests.support.clock import ManualClock
from tests.support.databases import wait_until_unused
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.worker.alone import lone_executor
from tests.worker.hand import make_spec

NAME = "rota_spikes"
JOBS = 50_000
WORK, CLAIM = 2_000, 100
"""Jobs to do of each queue, and jobs of one claim."""
SPIKES = ["due", "unknown", "dead", "future"]
BLOCKS_MAX = 2_000
"""For a statement on a hundred jobs; walking over a spike would cost many times that."""
SPARE_BLOCKS = 500
"""More than on the small queue: many rows make each index a level higher, rows lie on other
pages, and what a test undid leaves entries behind.
"""

WORK_ONLY = f"""
set session_replication_role = replica;
insert into rota.job (job_type, queue, priority, run_at)
  select 't', q, 0, now() - interval '1 h' from unnest('{{unknown,dead,future,small}}'::text[]) q,
    generate_series(1, {WORK});
reset session_replication_role"""
# Triggers off: run_at stays as it is given. No ANALYZE, as right after a bulk load.
LOAD = """
alter table rota.job set (autovacuum_enabled = off);
set session_replication_role = replica;
insert into rota.job (job_type, queue, priority, run_at, expires_at)
  select 't', 'due', 0, now() - interval '1 h', now() + interval '1 day'
    from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, run_at)
  select 'unknown', 'unknown', 0, now() - interval '2 h' from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, run_at, expires_at, status)
  select 't', 'dead', 0, now() - interval '2 h', now() - interval '1 h', 'dead'
    from generate_series(1, {jobs});
insert into rota.job (job_type, queue, priority, run_at, expires_at)
  select 't', 'future', 0, now() + interval '1 day', now() + interval '2 days'
    from generate_series(1, {jobs});
"""


@dataclass
class Cost:
    """What a statement read: pages, and of each index of the live table the entries."""

    blocks: int
    entries: dict[str, int]
    whole_tables: int
    """Sequential scans of the live table."""


class Spikes:
    """The database with the spikes in it; whatever a test does there is undone, but for claims."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self.connection = connection
        self.database = Database("")

    def cost(self, operation: Operation[Any], rows: int, *, like: Operation[Any]) -> Cost:
        """Run the first statement of an operation and undo it; it must return this many rows.

        `like` does the same to no row, and pays for planning.
        """
        self._undone(next(like))
        found, cost = self._undone(next(operation))
        assert found == rows
        return cost

    def entries(self, index: str) -> int:
        row = self.connection.execute(
            "select idx_tup_read from pg_stat_user_indexes where indexrelname = %s", [index]
        ).fetchone()
        assert row is not None
        read: int = row[0]
        return read

    def _undone(self, query: Any) -> tuple[int, Cost]:
        with self.connection.transaction(force_rollback=True):
            blocks, entries, scans = self._read()
            statement = b"explain (analyze, format json) " + self.database.statements[query.name]
            row = self.connection.execute(statement, query.params).fetchone()
            blocks_then, entries_then, scans_then = self._read()
        assert row is not None
        read = {
            name: count - entries[name]
            for name, count in entries_then.items()
            if count != entries[name]
        }
        return row[0][0]["Plan"]["Actual Rows"], Cost(
            blocks_then - blocks, read, scans_then - scans
        )

    def _read(self) -> tuple[int, dict[str, int], int]:
        """What this transaction has read so far: pages, the entries of each index of the live
        table, and how often the whole of it.

        Pages of tables and indexes that are not the catalog's: DDL in any database of the server
        may have a session read its catalogs anew, at any time.
        """
        indexes = self.connection.execute(
            "select i.indexrelid::regclass::text, "
            "coalesce(pg_stat_get_xact_tuples_returned(i.indexrelid), 0)"
            " from pg_index i where i.indrelid = 'rota.job'::regclass"
        ).fetchall()
        row = self.connection.execute(
            "select sum(pg_stat_get_xact_blocks_fetched(oid))::int, "
            "pg_stat_get_xact_numscans('rota.job'::regclass) from pg_class where oid >= 16384"
        ).fetchone()
        assert row is not None
        return row[0], {name.removeprefix("rota."): count for name, count in indexes}, row[1]


@pytest.fixture
def spikes(server: PostgresServer, template: str, admin: Connection) -> Iterator[Spikes]:
    """One database for all these tests, loaded by the first.

    One test at a time has it, because the counters are the database's.
    """
    name = NAME
    with no_load_beside(server):
        if not _is_there(admin, name):
            _execute(admin, "CREATE DATABASE {} TEMPLATE {}", f"{name}_unfinished", template)
            with (
                psycopg.connect(server.url(f"{name}_unfinished"), autocommit=True) as loading,
                without_indexes(loading, "rota.job"),
            ):
                loading.execute(LOAD.format(jobs=JOBS).encode())
                loading.execute(WORK_ONLY.encode())
            wait_until_unused(f"{name}_unfinished", admin)
            _execute(admin, "ALTER DATABASE {} RENAME TO {}", f"{name}_unfinished", name)
        wait_until_unused(name, admin)  # a session counts what it has read when it ends
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("select rota.resume_copy()")
            yield Spikes(server.url(name), connection)


def _claim(
    queue: str, after: datetime = BEGINNING, after_id: int = 0, *, behind: timedelta = timedelta(0)
) -> Operation[ops.Claimed]:
    branches = ops.Branches(
        [CLAIM], [CLAIM], [1], [0], [1], [queue], [0], [after], [after_id], [behind]
    )
    return ops.claim(
        ops.Claimant("w", "1", ["t"], [timedelta(minutes=2)], [False]),
        branches,
        {queue: BEGINNING},
        None,
    )


def _of_a_claim(spikes: Spikes, claim: Operation[ops.Claimed]) -> Cost:
    # The last row is no job.
    return spikes.cost(claim, CLAIM + 1, like=_claim("nowhere"))


def _frontier(spikes: Spikes, queue: str) -> tuple[datetime, int]:
    """Where the frontier of a worker lies that has seen everything before the first job that it can
    do.
    """
    row = spikes.connection.execute(
        "select run_at, id - 1 from rota.job where queue = %s and priority = 0 and status in "
        "('queued', 'failed') and job_type = 't'"
        " order by run_at, id limit 1",
        [queue],
    ).fetchone()
    assert row is not None
    return row[0], row[1]


@rule("M14", "M88")
def test_a_claim_reads_what_it_takes_and_nothing_of_the_spike(spikes: Spikes) -> None:
    small = _of_a_claim(spikes, _claim("small", *_frontier(spikes, "small")))
    for queue in SPIKES:
        cost = _of_a_claim(spikes, _claim(queue, *_frontier(spikes, queue)))
        assert set(cost.entries) == set(small.entries) == {"job_ready", "job_pkey"}, queue
        assert cost.whole_tables == 0, queue
        assert cost.entries["job_ready"] <= 2 * small.entries["job_ready"] <= 3 * CLAIM, (
            f"{queue}: {cost}"
        )
        assert cost.blocks <= small.blocks + SPARE_BLOCKS <= BLOCKS_MAX, (
            f"{queue}: {cost}, small: {small}"
        )
    # And the measure itself: a first look, from the beginning, walks over the unknown jobs, and
    # that shows.
    first = _of_a_claim(spikes, _claim("unknown"))
    assert first.entries["job_ready"] >= JOBS
    assert first.blocks > BLOCKS_MAX


@rule("M14", "M88")
def test_claims_of_very_many_jobs_due_at_the_same_instant_go_on_by_id_and_cost_the_same_each(
    spikes: Spikes,
) -> None:
    hand = Hand(spikes.connection, queues=["due"])
    with psycopg.connect(spikes.url) as other:
        other.execute("set transaction isolation level repeatable read")
        # An old snapshot: no index entry of a claimed job can be forgotten.
        other.execute("select count(*) from rota.queue")
        taken: list[Job] = []
        begin = _frontier(spikes, "due")
        first = _of_a_claim(spikes, _claim("due", *begin))
        for _ in range(20):
            run_at, id_ = (taken[-1].run_at, taken[-1].id) if taken else begin
            taken += hand.claim(CLAIM, after=run_at, after_id=id_).jobs
        assert [job.id for job in taken] == sorted({job.id for job in taken})
        assert (len(taken), len({job.run_at for job in taken})) == (20 * CLAIM, 1)
        last = _of_a_claim(spikes, _claim("due", taken[-1].run_at, taken[-1].id))
        assert last.entries["job_ready"] <= first.entries["job_ready"] + 10
        assert last.blocks <= first.blocks + SPARE_BLOCKS
        # The measure works: without the frontier the claim reads past all claimed jobs.
        again = _of_a_claim(spikes, _claim("due", *begin))
        assert again.entries["job_ready"] >= 20 * CLAIM
    hand.settle(*((job, FAIL) for job in taken))


@rule("M14", "M36", "M88")
def test_of_very_many_jobs_that_expire_at_once_each_batch_reads_its_own(spikes: Spikes) -> None:
    batch, hand = 500, Hand(spikes.connection)
    begin: tuple[datetime, int] = (_now(spikes), 0)
    after = begin
    with psycopg.connect(spikes.url) as other, _ahead(spikes.connection, "25 h"):
        other.execute("set transaction isolation level repeatable read")
        # An old snapshot: no index entry of an expired job can be forgotten.
        other.execute("select count(*) from rota.queue")
        nothing = datetime(2100, 1, 1, tzinfo=UTC)
        for _ in range(5):
            cost = spikes.cost(
                ops.expire("w", *after, batch), batch, like=ops.expire("w", nothing, 0, batch)
            )
            assert cost.entries["job_expires"] < 3 * batch
            after = max(
                (gone.expires_at, gone.job) for gone in hand.run(ops.expire("w", *after, batch))[1]
            )
        # And the measure itself: one that begins at the beginning again passes over all that are
        # gone.
        again = spikes.cost(
            ops.expire("w", *begin, batch), batch, like=ops.expire("w", nothing, 0, batch)
        )
        assert again.entries["job_expires"] >= 6 * batch


@contextmanager
def _ahead(connection: Connection, by: str) -> Iterator[None]:
    move_clock(connection, by)
    try:
        yield
    finally:
        move_clock(connection, "0 s")


def _now(spikes: Spikes) -> datetime:
    row = spikes.connection.execute("select rota.clock()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


@rule("M14", "M88")
@pytest.mark.parametrize("queue", ["unknown", "future"])
async def test_an_idle_worker_beside_a_spike_pays_for_its_first_look_and_nothing_for_each_poll(
    spikes: Spikes, queue: str
) -> None:
    jobs = rota.Jobs()

    @jobs.job("nobody", queue=queue)
    async def nobody() -> None: ...

    clock = ManualClock()  # or another look at everything is due soon
    executor, others = lone_executor(queue=queue, slots=10, clock=clock)
    stands: Any = others
    link = StoreLink(Database(spikes.url, notify=False), "claim")
    claimer = Claimer(make_spec(jobs), Bus(), clock, link, executor, *[stands] * 5)
    try:
        before = spikes.entries("job_ready")
        first = await _read_by(claimer, link, spikes) - before
        polls = [await _read_by(claimer, link, spikes) for _ in range(20)][-1] - before - first
    finally:
        await claimer.close()
    assert first >= (JOBS if queue == "unknown" else 0)
    assert polls <= 20, "at most one entry each, of the probe for unknown priorities"
    assert claimer.claimed == 0


async def _read_by(claimer: Claimer, link: StoreLink, spikes: Spikes) -> int:
    """Let it claim once; how many entries of the ready index have been read by then."""
    await claimer.tick()
    assert link._connection is not None
    await link._connection.driver().run(b"select pg_stat_force_next_flush()", None)
    return spikes.entries("job_ready")
