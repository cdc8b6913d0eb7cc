"""Lanes and caps with real workers: the next job of a lane starts when the one before has ended."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.observe.events import JobSnoozed
from rota.upkeep.lanes import LaneSweeper
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand

Connection = psycopg.Connection[TupleRow]


def fill(connection: Connection, lanes: int, jobs: int) -> None:
    """Insert jobs of type `note`, the lanes in turns; each knows its number in its lane."""
    connection.execute(
        "insert into rota.job (job_type, queue, priority, payload, group_key) "
        "select 'note', 'default', 0, jsonb_build_object('lane', lane, 'n', n), 'lane ' || lane "
        "from generate_series(1, %s) n cross join generate_series(1, %s) lane order by n",
        [jobs, lanes],
    )


def left(connection: Connection) -> list[tuple[str, int]]:
    """How many jobs are in the table, by status."""
    rows = connection.execute("select status, count(*) from rota.job group by 1").fetchall()
    return [(row[0], row[1]) for row in rows]


async def seen(holds: Callable[[], bool]) -> None:
    """Wait until something holds that no event of a worker tells."""
    await asyncio.to_thread(eventually, holds)


class Notes:
    """Jobs that note their order, and whether two of a lane run at once."""

    def __init__(self) -> None:
        self.jobs = rota.Jobs()
        self.order: dict[int, list[int]] = defaultdict(list)
        self.overlaps = 0
        self._live: set[int] = set()
        self.jobs.job("note")(self.note)

    async def note(self, lane: int, n: int) -> None:
        """Note one."""
        self.overlaps += lane in self._live
        self._live.add(lane)
        self.order[lane].append(n)
        await asyncio.sleep(0)
        self._live.discard(lane)


@rule("M60")
async def test_a_drain_runs_each_lane_in_its_order_and_ends_when_nothing_is_left(
    database: str, connection: Connection
) -> None:
    notes = Notes()
    fill(connection, lanes=20, jobs=30)
    report = await Hand(database, notes.jobs, drain=True, slots=50).run()
    assert (report.succeeded, left(connection), notes.overlaps) == (600, [], 0)
    assert dict(notes.order) == {lane: list(range(1, 31)) for lane in range(1, 21)}


@rule("M60", "M2")
async def test_the_worker_that_ends_a_job_of_a_lane_has_the_next_one_with_that(
    database: str, connection: Connection
) -> None:
    notes = Notes()
    fill(connection, lanes=1, jobs=100)
    report = await Hand(database, notes.jobs, drain=True).run()
    assert (report.succeeded, notes.order[1]) == (100, list(range(1, 101)))
    # All but the first are parked, and each is claimed. One that had to wait for a claim would be
    # made due before.
    updates = 100 + 99
    eventually(lambda: count_updates(connection) >= updates, what="the server has counted all")
    assert count_updates(connection) < updates + 10


def count_updates(connection: Connection) -> int:
    """How often a row of `job` has been written anew."""
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute(
        "select n_tup_upd from pg_stat_user_tables where relname = 'job' and schemaname = 'rota'"
    ).fetchone()
    assert row is not None
    return int(row[0])


@rule("M60", "M54")
async def test_a_lane_goes_on_at_once_however_the_job_before_it_ended(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.upkeep.lanes.PERIOD_S", 600.0)  # no sweep helps
    monkeypatch.setattr("rota.upkeep.lanes.LaneSweeper.asked_every_s", 600.0)
    jobs, order = rota.Jobs(), list[int]()

    @jobs.job("t", retry=rota.Fixed("1s", jitter=0), takes_context=True)
    def end(ctx: rota.Context, n: int) -> None:
        order.append(n)
        first = order.count(n) == 1
        if n == 2:
            raise rota.Dead("not wanted")
        if n == 3:
            raise rota.Cancel("not needed")
        if n == 4 and first:
            raise OSError("try again")
        if n == 5 and first:
            raise rota.Snooze("1s")
        if n == 6:
            with ctx.transaction():
                pass  # the job ends with its commit

    connection.execute(
        "insert into rota.job (job_type, queue, priority, payload, group_key) "
        "select 't', 'default', 0, jsonb_build_object('n', n), 'g' from generate_series(1, 7) n"
    )
    # Nothing but the end of the job before wakes it.
    async with Hand(database, jobs, poll_s=60.0, notify=False) as hand:
        await hand.heard(JobSnoozed)
        await hand.until(lambda: left(connection) == [("dead", 1)])
    assert order == [1, 2, 3, 4, 4, 5, 5, 6, 7]


@rule("M60")
async def test_an_idle_worker_of_another_queue_takes_the_next_job_of_a_lane(
    database: str, connection: Connection
) -> None:
    jobs, started, may_end = rota.Jobs(), list[str](), asyncio.Event()

    @jobs.job("t")
    async def wait(name: str) -> None:
        started.append(name)
        if name == "first":
            await may_end.wait()

    for queue, name in (("a", "first"), ("b", "next")):
        connection.execute(
            "insert into rota.job (job_type, queue, priority, payload, group_key) "
            "values ('t', %s, 0, jsonb_build_object('name', %s::text), 'g')",
            [queue, name],
        )
    a = Hand(database, jobs, queues={"a": 1}, poll_s=60.0)
    b = Hand(database, jobs, queues={"b": 1}, poll_s=60.0)
    async with a, b:
        await seen(lambda: sorted(left(connection)) == [("running", 1), ("waiting", 1)])
        waiting = "select count(*) from rota.queue where name = 'b' and notify_until > rota.clock()"
        await seen(lambda: connection.execute(waiting).fetchone() == (1,))
        may_end.set()
        await b.until(lambda: started == ["first", "next"])


@rule("M60")
async def test_a_drain_finds_a_lane_whose_holder_was_deleted(
    database: str, connection: Connection
) -> None:
    notes = Notes()
    fill(connection, lanes=1, jobs=2)
    connection.execute(
        "update rota.job set status = 'waiting' where (payload -> 'n')::int = 2; "
        "delete from rota.job where (payload -> 'n')::int = 1"
    )
    await Hand(database, notes.jobs, drain=True).run()
    assert notes.order == {1: [2]}


@rule("M60")
async def test_a_worker_finds_a_place_that_a_cancel_in_a_transaction_left(
    database: str, connection: Connection
) -> None:
    notes = Notes()
    fill(connection, lanes=1, jobs=2)
    connection.execute(
        "update rota.job set in_lane = true, run_at = rota.clock() + interval '1 h' "
        "where (payload -> 'n')::int = 1"
    )
    async with Hand(database, notes.jobs) as hand:
        await seen(lambda: ("waiting", 1) in left(connection))
        with connection.transaction():
            connection.execute("select rota.job_cancel(array(select min(id) from rota.job))")
        await hand.until(lambda: notes.order == {1: [2]})


@rule("M60")
async def test_an_idle_worker_looks_for_free_places_soon_after_a_job_had_to_wait(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.upkeep.lanes.PERIOD_S", 0.05)
    monkeypatch.setattr(LaneSweeper, "asked_every_s", 600.0)
    notes = Notes()
    async with Hand(database, notes.jobs) as hand:
        await seen(lambda: not hand.part(LaneSweeper)._is_first)
        with connection.transaction():
            fill(connection, lanes=1, jobs=2)
            connection.execute(
                "update rota.job set in_lane = true, run_at = rota.clock() + interval '1 h' "
                "where (payload -> 'n')::int = 1"
            )
        await seen(lambda: ("waiting", 1) in left(connection))
        connection.execute("select rota.job_cancel(array(select min(id) from rota.job))")
        await hand.until(lambda: notes.order == {1: [2]})


@rule("M61")
async def test_a_cap_holds_over_two_workers_while_other_types_run(
    database: str, connection: Connection
) -> None:
    jobs, live, most = rota.Jobs(), list[int](), list[int]()

    @jobs.job("slow", max_running=3)
    async def slow() -> None:
        live.append(1)
        most.append(len(live))
        await asyncio.sleep(0.005)
        live.pop()

    @jobs.job("quick")
    async def quick() -> None: ...

    connection.execute(
        "insert into rota.job (job_type, queue, priority) "
        "select case when n % 2 = 0 then 'slow' else 'quick' end, 'default', 0 "
        "from generate_series(1, 200) n"
    )
    async with Hand(database, jobs, slots=10), Hand(database, jobs, slots=10):
        await seen(lambda: left(connection) == [])
    assert max(most) == 3
