"""What doctor says of lanes, caps, rate limits, breakers and jobs that wait for others."""

from __future__ import annotations

import json
from dataclasses import replace

import psycopg
from psycopg.rows import TupleRow

from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Finding, Level
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
