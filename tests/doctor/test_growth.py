"""What doctor says of lanes and rate limits that a team outgrows."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from rota.observe.doctor.finding import Level
from rota.store.db import Database
from tests.doctor.test_waits import look
from tests.store.cost import count_blocks
from tests.store.planned import set_clock
from tests.store.work import Hand
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
BEHIND = 1_000
BLOCKS = 3_000
DAY = "2031-05-10"


def put(connection: Connection, lane: str, count: int, at: str, queue: str = "default") -> None:
    """Insert jobs that are due at a time of a day."""
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key, run_at) "
        "select 't', %s, 0, %s, %s::timestamptz from generate_series(1, %s)",
        [queue, lane, f"{DAY} {at}Z", count],
    )


def claim(connection: Connection) -> int:
    """Claim what may run and park what is behind it; return how many run."""
    hand = Hand(connection)
    return len([job for _ in range(2) for job in hand.claim().jobs])


@rule("M3", "M60")
def test_a_lane_that_gets_more_jobs_than_it_can_run_is_reported(
    database: str, connection: Connection
) -> None:
    set_clock(connection, f"{DAY} 12:00")
    put(connection, "tenant:7", BEHIND + 1, "12:00")
    put(connection, "tenant:8", BEHIND, "12:00")  # one fewer is behind the one that runs
    assert claim(connection) == 2
    set_clock(connection, f"{DAY} 12:03")
    found = look(database, "busy-groups")
    assert found.level is Level.WARN
    assert "'tenant:7' (1,000 jobs or more, the next due for 3 min)" in found.what
    assert "tenant:8" not in found.what


@rule("M3", "M60")
def test_a_lane_that_waits_for_something_else_or_not_for_long_is_no_sign(
    database: str, connection: Connection
) -> None:
    set_clock(connection, f"{DAY} 12:00")
    put(connection, "tenant:1", BEHIND + 1, "12:00", queue="unserved")
    put(connection, "tenant:2", 2, "12:00")
    put(connection, "tenant:2", BEHIND, "12:05")  # they are to come
    put(connection, "tenant:3", BEHIND + 1, "12:02:30")
    assert claim(connection) == 1
    set_clock(connection, f"{DAY} 12:02:30")
    assert claim(connection) == 1
    set_clock(connection, f"{DAY} 12:03")
    assert look(database, "busy-groups").level is Level.OK


@rule("M3", "M85")
def test_the_look_at_lanes_and_limits_reads_a_part_of_them(
    database: str, connection: Connection
) -> None:
    """However many jobs wait, in however many lanes, and whatever keys a limit has."""
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane) "
        "select 't', 'default', 0, case when n <= 3 then 'queued' else 'waiting' end, "
        "case when n <= 3 then 'long:' || n when n <= 10000 then 'long:1' else 'lane:' || n end, "
        "case when n <= 3 then true end from generate_series(1, 20000) n"
    )
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'w', locked_until = rota.clock() + "
        "interval '1 hour' where status = 'queued'"
    )
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) values ('api', 9, '1 s', 1)"
    )
    connection.execute(
        "insert into rota.rate_limit_key (name, key, version, tat, updated_at) "
        "select 'api', n, 1, rota.clock(), '2020-01-01Z' from generate_series(1, 10000) n"
    )
    connection.execute(
        "insert into rota.batch_delta (batch) select n from generate_series(1, 10000) n"
    )
    read = {"prefix": "rota ", "limit": BEHIND, "names": 100, "deltas": BEHIND}
    statement = Database("").statements["doctor_growth"]
    connection.execute(statement, read)  # it reads the catalog
    assert count_blocks(connection, statement, read) < BLOCKS
    assert look(database, "busy-groups").what.startswith("1 ordered group that runs has due jobs")
