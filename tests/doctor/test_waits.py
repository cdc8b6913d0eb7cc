"""What doctor says of lanes, caps, rate limits, breakers and jobs that wait for others."""

from __future__ import annotations

import json
from dataclasses import replace

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.observe.doctor import Finding, Level, examine
from rota.store.db import Database
from tests.store.work import PAYLOAD_MISMATCH, Hand, insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


def look(database: str, check: str) -> Finding:
    target = Database(database)
    try:
        return replace(examine(target, only=[check])[check])
    finally:
        target.close()


def hold(connection: Connection, waits_for: str, *, since: str, count: int = 1) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, run_at, waits_for, waits_since) "
        "select 't', 'default', 0, 'waiting', rota.clock(), %s, rota.clock() - %s::interval"
        " from generate_series(1, %s)",
        [waits_for, since, count],
    )


@rule("M3", "M12")
@pytest.mark.parametrize(("ago", "level"), [("0 s", Level.WARN), ("11 minutes", Level.BAD)])
def test_payloads_that_no_release_at_work_reads_are_reported_with_argument_and_deadline(
    database: str, connection: Connection, ago: str, level: Level
) -> None:
    insert(connection)
    hand = Hand(connection, release="2")
    Hand(connection, "old", release="1").send_heartbeat()
    [job] = hand.claim().jobs
    hand.settle((job, PAYLOAD_MISMATCH), ran_s=None)
    connection.execute(
        "update rota.job set waits_since = waits_since - %s::interval, "
        "run_at = run_at - %s::interval",
        [ago, ago],
    )
    found = look(database, "payloads")
    assert found.level is level
    [(until,)] = connection.execute(
        "select rota.utc_text(run_at + interval '1 hour') from rota.job"
    ).fetchall()
    assert "1 job of type t" in found.what and "release 2 cannot (does not fit)" in found.what
    assert f"at {until} they try again, and the next job is dead if no other" in found.what


@rule("M3", "M45")
def test_jobs_whose_secrets_no_live_worker_can_open_are_bad_and_their_key_is_named(
    database: str, connection: Connection
) -> None:
    assert look(database, "secrets").what == "no type has secret arguments"
    connection.execute("select rota.declare('charge', secret_fields => '{token}')")
    assert look(database, "secrets").level is Level.OK
    sealed = json.dumps({"token": {"sealed": "A" * 40, "key": "k7"}})
    connection.execute(
        "insert into rota.job (job_type, payload) select 'charge', %s::jsonb"
        " from generate_series(1, 2)",
        [sealed],
    )
    Hand(connection, "keyless").send_heartbeat()
    found = look(database, "secrets")
    assert found.level is Level.BAD and "k7: 2 jobs, as job 1" in found.what
    connection.execute("update rota.worker set secret_keys = '{k7}'")
    assert look(database, "secrets").what == (
        "workers have the keys of 2 waiting jobs with secret arguments"
    )
    connection.execute("update rota.job set waits_for = 'key k7' where id = 2")
    found = look(database, "secrets")
    assert found.level is Level.WARN and "k7: 2 jobs, as job 1" in found.what


@rule("M3", "M60")
def test_a_halted_lane_is_bad_and_says_which_job_a_person_must_resolve(
    database: str, connection: Connection
) -> None:
    assert look(database, "groups").level is Level.OK
    [[job]] = connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane, waits_for, "
        "waits_since, failed_at) values ('t', 'default', 0, 'dead', 'invoice:42', true, 'person', "
        "rota.clock() - interval '5 minutes', rota.clock()) returning id"
    )
    found = look(database, "groups")
    assert found.level is Level.BAD
    assert (
        found.what
        == f"1 ordered group is halted by a dead job: 'invoice:42' by job {job}, for 5 min"
    )
    assert f"rota retry {job}" in found.what_to_do


@rule("M3", "M61")
@pytest.mark.parametrize(("since", "level"), [("9 minutes", Level.OK), ("11 minutes", Level.WARN)])
def test_a_cap_that_was_full_for_long_is_reported(
    database: str, connection: Connection, since: str, level: Level
) -> None:
    hold(connection, "type report", since=since, count=3)
    hold(connection, "queue email", since="1 minute")
    found = look(database, "concurrency")
    assert found.level is level
    assert ("type report: 3 jobs, for 11 min" in found.what) == (level is Level.WARN)
    assert "queue email" not in found.what


def declare_limit(connection: Connection, name: str) -> None:
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) values (%s, 100, '1 minute', 10)",
        [name],
    )


def hand_back(connection: Connection, waits_for: str, ahead: str) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at, waits_for, waits_since) "
        "values ('t', 'default', 0, rota.clock() + %s::interval, %s, rota.clock())",
        [ahead, waits_for],
    )


@rule("M3", "M62")
@pytest.mark.parametrize(("ahead", "level"), [("50 minutes", Level.OK), ("90 minutes", Level.WARN)])
def test_a_backlog_of_a_limit_that_reaches_far_ahead_is_reported(
    database: str, connection: Connection, ahead: str, level: Level
) -> None:
    declare_limit(connection, "smtp")
    hand_back(connection, "limit smtp anna", ahead)
    found = look(database, "limits")
    assert found.level is level
    assert ("limit smtp anna: 1 job" in found.what) == (level is Level.WARN)


@rule("M3", "M62")
def test_jobs_that_wait_for_a_limit_whose_row_is_gone_are_reported(
    database: str, connection: Connection
) -> None:
    declare_limit(connection, "smtp")
    hand_back(connection, "limit smtp anna", "5 seconds")
    assert look(database, "limits").level is Level.OK
    connection.execute("delete from rota.rate_limit")
    found = look(database, "limits")
    assert found.level is Level.WARN
    assert "no row in rota.rate_limit: limit smtp anna: 1 job" in found.what
    assert "rota sync" in found.what_to_do


@rule("M3", "M63")
@pytest.mark.parametrize(("ago", "level"), [("14 minutes", Level.OK), ("16 minutes", Level.WARN)])
def test_a_breaker_that_is_open_for_long_is_reported(
    database: str, connection: Connection, ago: str, level: Level
) -> None:
    connection.execute(
        "insert into rota.breaker (name, key, state, opened_at, reason) values "
        "('charge', 'api.example.com', 'open', rota.clock() - %s::interval, 'timeout'), "
        "('charge', 'b.example.com', 'closed', null, null)",
        [ago],
    )
    found = look(database, "breakers")
    assert found.level is level
    said = "charge api.example.com for 16 min (timeout)"
    assert (said in found.what) == (level is Level.WARN)
    assert level is Level.WARN or found.what == "1 breaker is open"


@rule("M3", "M11")
@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("dead", "job 2 for job 1, which is dead: retry or archive it"),
        ("circle", "job 1 for job 2, which waits for it in turn: cancel one of them"),
        ("lane", "job 2 for job 1, which comes after it in its ordered group: cancel one of them"),
        (None, "1 job waits for other jobs to end"),
    ],
)
def test_a_job_that_waits_for_others_for_ever_is_bad_and_named(
    database: str, connection: Connection, why: str | None, says: str
) -> None:
    meta = {"jobs": [1], "on_failure": "wait"}
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane, waits_for, "
        "meta) values ('t', 'default', 0, %s, %s, %s, %s, '{}'), "
        "('t', 'default', 0, 'waiting', 'g', true, 'job 1', "
        "  jsonb_build_object('rota.waits', %s::jsonb))",
        [
            {"dead": "dead", "circle": "waiting"}.get(str(why), "queued"),
            "g" if why == "lane" else None,
            None,
            "job 2" if why == "circle" else None,
            json.dumps(meta),
        ],
    )
    found = look(database, "awaited")
    assert found.level is (Level.OK if why is None else Level.BAD)
    assert says in found.what


@rule("M11")
def test_a_job_that_is_told_of_a_dead_one_does_not_wait_for_ever(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, waits_for, meta) values "
        "('t', 'default', 0, 'dead', null, null), ('t', 'default', 0, 'waiting', 'job 1', "
        """'{"rota.waits": {"jobs": [1], "on_failure": "continue"}}')"""
    )
    assert look(database, "awaited").level is Level.OK
