"""What doctor and the alert rules judge by: asked of the tables, as each of them asks."""

from __future__ import annotations

import json

from rota.store.statements import Statements
from tests.store.work import Connection
from tests.support.rules import rule


def put_worker(connection: Connection, started: str, seen: str, *, stopped: bool = False) -> None:
    """Insert a worker that started and was last seen so long ago; a drain has stopped then."""
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues, "
        "started_at, heartbeat_at, stopped_at) values (gen_random_uuid(), 'h', 1, '1', '1', '{}', "
        "'{}', rota.clock() - %(started)s::interval, rota.clock() - %(seen)s::interval, "
        "case when %(stopped)s then rota.clock() - %(seen)s::interval end)",
        {"started": started, "seen": seen, "stopped": stopped},
    )


def overdue(connection: Connection) -> int:
    row = connection.execute(
        "select count(*) from rota.schedules_overdue('1 min', null::int)"
    ).fetchone()
    assert row is not None
    return int(row[0])


@rule("M82", "M86")
def test_a_late_schedule_is_seen_between_drains_and_beside_workers_that_die_young(
    shared: Connection,
) -> None:
    shared.execute(
        "insert into rota.schedule (name, job_type, cron, next_run_at) "
        "values ('s', 't', '* * * * *', rota.clock() - interval '2 hours')"
    )
    assert overdue(shared) == 1  # without any worker
    for minutes in range(1, 5):
        put_worker(shared, f"{minutes} min", f"{minutes} min", stopped=True)
    assert overdue(shared) == 1
    put_worker(shared, "5 s", "1 s")
    assert overdue(shared) == 1  # the one before it had time, and did nothing


@rule("M35", "M85")
def test_a_job_that_runs_for_longer_than_it_may_is_found_with_its_worker(
    shared: Connection,
) -> None:
    shared.execute("insert into rota.job_type (name, timeout) values ('t', '1 minute')")
    shared.execute("select setval('rota.job_id_seq', 5)")
    running = [
        (1, "u", None, "6 min"),
        (2, "u", None, "4 min"),
        (3, "t", None, "2 min"),
        (4, "t", "3 min", "100 s"),
        (5, "t", "90 s", "100 s"),
    ]
    for id_, job_type, timeout, since in running:
        shared.execute(
            "insert into rota.job (id, job_type, queue, priority, status, locked_by, "
            "locked_until, timeout, started_at) values (%s, %s, 'q', 0, 'running', 'w', "
            "rota.clock() + interval '1 min', %s, rota.clock() - %s::interval)",
            [id_, job_type, timeout, since],
        )
    [(facts,)] = shared.execute(
        Statements("rota")["doctor_running"], {"margin": "0", "limit": 10}
    ).fetchall()
    found = [
        (job["id"], job["worker"], int(job["running_s"]), job["timeout_s"])
        for job in json.loads(facts)["long"]
    ]
    assert found == [(1, "w", 360, 300), (3, "w", 120, 60), (5, "w", 100, 90)]


@rule("M82")
def test_a_schedule_without_a_payload_has_an_empty_one(shared: Connection) -> None:
    for payload in ("null", "{}"):
        shared.execute(
            "select rota.schedule_put(jsonb_build_object('name', 's', 'job_type', 't', 'payload', "
            "%s::jsonb), 'api')",
            [payload],
        )
        assert shared.execute("select payload from rota.schedule").fetchall() == [({},)]
