"""What doctor says of lanes, rate limits and jobs that wait for others, and of those that a team
outgrows."""

from __future__ import annotations

import json

import psycopg
from psycopg.rows import TupleRow

from rota.observe.doctor.finding import Level
from rota.store.db import Database
from tests.doctor.test_doctor import look
from tests.store.cost import count_blocks
from tests.store.planned import set_clock
from tests.store.work import PAYLOAD_MISMATCH, Hand, insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]
BEHIND = 1_000
BLOCKS = 3_000
DAY = "2031-05-10"


@rule("M3", "M12")
def test_payloads_that_no_release_at_work_reads_are_reported_with_argument_and_deadline(
    database: str, connection: Connection
) -> None:
    insert(connection)
    hand = Hand(connection, release="2")
    Hand(connection, "old", release="1").send_heartbeat()
    [job] = hand.claim().jobs
    hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)
    found = look(database, "payloads")
    assert found.level is Level.WARN
    assert "1 job of type t" in found.what and "release 2 cannot (does not fit)" in found.what
    connection.execute(
        "update rota.job set waits_since = waits_since - interval '11 minutes', "
        "run_at = run_at - interval '11 minutes'"
    )
    found = look(database, "payloads")
    [(until,)] = connection.execute(
        "select rota.utc_text(run_at + interval '1 hour') from rota.job"
    ).fetchall()
    assert found.level is Level.BAD
    assert f"at {until} they try again, and the next job is dead if no other" in found.what


@rule("M3", "M11")
def test_a_job_that_waits_for_others_for_ever_is_bad_and_named(
    database: str, connection: Connection
) -> None:
    for why, status, on_failure, says in (
        ("dead", "dead", "wait", "which is dead: retry or archive it"),
        ("circle", "waiting", "wait", "which waits for it in turn: cancel one of them"),
        ("lane", "queued", "wait", "which comes after it in its ordered group: cancel one of"),
        ("told", "dead", "continue", None),
        ("live", "queued", "wait", None),
    ):
        connection.execute("delete from rota.job")
        first, second = insert(connection, 2)
        meta = {"jobs": [first], "on_failure": on_failure}
        connection.execute(
            "update rota.job set status = %s, group_key = %s, waits_for = %s where id = %s",
            [
                status,
                "g" if why == "lane" else None,
                f"job {second}" if why == "circle" else None,
                first,
            ],
        )
        connection.execute(
            "update rota.job set status = 'waiting', group_key = 'g', in_lane = true, "
            "waits_for = %s, meta = jsonb_build_object('rota.waits', %s::jsonb) where id = %s",
            [f"job {first}", json.dumps(meta), second],
        )
        found = look(database, "awaited")
        assert found.level is (Level.BAD if says else Level.OK), why
        assert says is None or says in found.what, why


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
        "update rota.job set status = 'running', claims = 1, locked_by = 'w', "
        "locked_until = rota.clock() + interval '1 hour' where status = 'queued'"
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
