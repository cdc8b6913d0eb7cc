"""What doctor says of lanes, caps, rate limits and breakers."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.observe.doctor import Finding, Level, examine
from rota.store.db import Database
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


@rule("M3", "M60")
def test_a_halted_lane_is_bad_and_says_which_job_a_person_must_resolve(
    database: str, connection: Connection
) -> None:
    assert look(database, "lanes").level is Level.OK
    [[job]] = connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane, waits_for, "
        "waits_since, failed_at) values ('t', 'default', 0, 'dead', 'invoice:42', true, 'person', "
        "rota.clock() - interval '5 minutes', rota.clock()) returning id"
    )
    found = look(database, "lanes")
    assert found.level is Level.BAD
    assert found.what == f"1 lane is halted by a dead job: 'invoice:42' by job {job}, for 5 min"
    assert f"rota requeue {job}" in found.what_to_do


@rule("M3", "M61")
@pytest.mark.parametrize(("since", "level"), [("9 minutes", Level.OK), ("11 minutes", Level.WARN)])
def test_a_cap_that_was_full_for_long_is_reported(
    database: str, connection: Connection, since: str, level: Level
) -> None:
    hold(connection, "type report", since=since, count=3)
    hold(connection, "queue email", since="1 minute")
    found = look(database, "caps")
    assert found.level is level
    assert ("type report: 3 jobs, for 11 min" in found.what) == (level is Level.WARN)
    assert "queue email" not in found.what


def declare_limit(connection: Connection, name: str) -> None:
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) values (%s, 100, '1 minute', 10)",
        [name],
    )


def put_back(connection: Connection, waits_for: str, ahead: str) -> None:
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
    put_back(connection, "limit smtp anna", ahead)
    found = look(database, "limits")
    assert found.level is level
    assert ("limit smtp anna: 1 job" in found.what) == (level is Level.WARN)


@rule("M3", "M62")
def test_jobs_that_wait_for_a_limit_whose_row_is_gone_are_reported(
    database: str, connection: Connection
) -> None:
    declare_limit(connection, "smtp")
    put_back(connection, "limit smtp anna", "5 seconds")
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
