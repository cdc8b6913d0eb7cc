"""Lanes with real workers: the next job of a lane starts when the one before has ended."""

from __future__ import annotations

import asyncio

import pytest

import rota
from rota.observe.events import JobSnoozed
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection


def left(connection: Connection) -> list[tuple[str, int]]:
    """How many jobs are in the table, by status."""
    rows = connection.execute("select status, count(*) from rota.job group by 1 order by 1")
    return [(row[0], row[1]) for row in rows]


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
        await aeventually(lambda: left(connection) == [("running", 1), ("waiting", 1)])
        waiting = "select count(*) from rota.queue where name = 'b' and notify_until > rota.clock()"
        await aeventually(lambda: connection.execute(waiting).fetchone() == (1,))
        may_end.set()
        await b.until(lambda: started == ["first", "next"])
