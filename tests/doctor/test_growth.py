"""What doctor says of lanes and rate limits that a team outgrows."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from rota.observe.doctor import Level
from rota.store.db import Database
from tests.doctor.test_waits import look
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
    assert found.what == (
        "1 ordered group falls behind while its jobs run: 'tenant:7' (1,000 jobs or more, "
        "the next due for 3 min)"
    )
    assert "group key" in found.what_to_do and "docs/operate/outgrown.md" in found.what_to_do


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
    found = look(database, "busy-groups")
    assert found.level is Level.OK
    assert found.what == "2 ordered groups that run have due jobs behind, none falls behind"


def use(
    connection: Connection, name: str, *, starts: int, per: str, key: str | None = None
) -> None:
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) values (%s, %s, %s, 1) "
        "on conflict do nothing",
        [name, starts, per],
    )
    connection.execute("select rota.limit_take(%s, %s, 1)", [name, key])


@rule("M3", "M62")
def test_a_rate_limit_that_is_faster_than_its_row_is_reported_once_it_is_used(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) "
        "values ('unused', 5000, '1 second', 500)"
    )
    use(connection, "smtp", starts=100, per="1 minute")
    assert look(database, "fast-limits").what == (
        "1 rate limit used within the hour, none too fast"
    )
    use(connection, "api", starts=300_000, per="1 minute", key="anna")
    use(connection, "slow", starts=240_000, per="1 minute")
    found = look(database, "fast-limits")
    assert found.level is Level.WARN
    assert found.what == "1 rate limit is faster than one key carries: api (5,000 a second)"
    assert "docs/operate/outgrown.md" in found.what_to_do
    connection.execute("update rota.rate_limit_key set updated_at = now() - interval '2 hours'")
    assert look(database, "fast-limits").what == (
        "0 rate limits used within the hour, none too fast"
    )


@rule("M3", "M72")
def test_batches_that_are_counted_too_late_are_reported(
    database: str, connection: Connection
) -> None:
    put = "insert into rota.batch_delta (batch, succeeded) select 1, 1 from generate_series(1, %s)"
    connection.execute(put, [99_999])
    assert look(database, "fan-out").level is Level.OK
    connection.execute(put, [2])
    found = look(database, "fan-out")
    assert found.level is Level.WARN
    assert found.what == "100,000 changes of batches or more are not counted yet"
    assert "larger batches" in found.what_to_do


@rule("M3", "M85")
def test_the_look_at_lanes_and_limits_reads_a_part_of_them(
    database: str, connection: Connection
) -> None:
    """However many jobs wait, in however many lanes, and whatever keys a limit has."""
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane) "
        "select 't', 'default', 0, case when n <= 3 then 'queued' else 'waiting' end, "
        "case when n <= 3 then 'long:' || n when n <= 20000 then 'long:1' else 'lane:' || n end, "
        "case when n <= 3 then true end from generate_series(1, 40000) n"
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
        "select 'api', n, 1, rota.clock(), '2020-01-01Z' from generate_series(1, 20000) n"
    )
    statement = (
        b"explain (analyze, buffers, format json) " + Database("").statements["doctor_growth"]
    )
    connection.execute(
        "insert into rota.batch_delta (batch) select n from generate_series(1, 20000) n"
    )
    read = {"prefix": "rota ", "limit": BEHIND, "names": 100, "deltas": BEHIND}
    plans = [connection.execute(statement, read).fetchall() for _ in range(2)]  # one of them plans
    [(plan,)] = plans[1]
    assert plan[0]["Plan"]["Shared Hit Blocks"] < BLOCKS
    assert look(database, "busy-groups").what.startswith("1 ordered group that runs has due jobs")
