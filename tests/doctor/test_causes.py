"""One cause is one finding that is bad: what follows from it is listed under it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from rota.observe.doctor.checks import Examination, examine
from rota.observe.doctor.finding import Cause, Finding, Level, Thresholds, attribute
from rota.store import probe
from rota.store.db import Database
from tests.doctor.test_doctor import _day, at_work
from tests.store.work import insert
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@pytest.fixture(autouse=True)
def patient_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow slow queries and notifications: this is not about how fast the machine is."""
    monkeypatch.setattr(probe, "QUERY_S", 30.0)
    monkeypatch.setattr(probe, "NOTIFY_S", 30.0)


def look(database: str, **said: Any) -> tuple[list[str], dict[str, str]]:
    """Return the checks that are bad, and those that follow from another, each with that one.

    Servers of tests have no autovacuum; that is not counted.
    """
    found: Examination = examine(Database(database), thresholds=Thresholds(round_trip_s=5), **said)
    follows = {
        check.name: finding.follows_from
        for check, finding in found.findings
        if finding.follows_from is not None
    }
    assert set(follows) == {check.name for check, _ in found.at(Level.FOLLOWS)}
    return [check.name for check, _ in found.at(Level.BAD) if check.name != "vacuum"], follows


def wait_long(connection: Connection, hours: float = 2, **columns: Any) -> None:
    """Insert a job that has been due for so long."""
    [id_] = insert(connection, **columns)
    connection.execute(
        "update rota.job set run_at = rota.clock() - %s * interval '1 hour' where id = %s",
        [hours, id_],
    )


@rule("M3", "M86")
def test_without_a_worker_everything_that_no_worker_does_follows_from_that(
    database: str, connection: Connection
) -> None:
    hand = at_work(connection)
    insert(connection)
    hand.claim()
    connection.execute(
        "update rota.job set locked_until = rota.clock() - interval '2 minutes', "
        "started_at = rota.clock() - interval '2 minutes'"
    )
    connection.execute("update rota.worker set heartbeat_at = heartbeat_at - interval '2 minutes'")
    connection.execute(
        "insert into rota.schedule (name, job_type, cron, next_run_at) "
        "values ('nightly', 't', '0 2 * * *', rota.clock() - interval '1 hour')"
    )
    connection.execute(f"drop table rota.attempt_{_day(connection, 1)}".encode())
    insert(connection, queue="email")
    connection.execute(
        "update rota.job set run_at = rota.clock() - interval '2 hours' where status = 'queued'"
    )
    follow = ["partitions", "queues", "oldest", "schedules", "running"]
    assert look(database) == (["workers"], dict.fromkeys(follow, "workers"))
    # An hour later nobody is known to have known the type.
    connection.execute("update rota.worker set heartbeat_at = heartbeat_at - interval '1 hour'")
    assert look(database) == (["workers"], dict.fromkeys([*follow, "types"], "workers"))


@rule("M3", "M86")
def test_jobs_wait_because_of_the_type_that_no_worker_knows(
    database: str, connection: Connection
) -> None:
    at_work(connection)
    wait_long(connection, job_type="send_welcom_email")
    assert look(database) == (["types"], {"oldest": "types"})
    connection.execute("delete from rota.worker")
    assert look(database) == (["workers", "types"], {"queues": "workers", "oldest": "workers"}), (
        "a mistyped name is a cause of its own: no worker will ever know it"
    )


@rule("M3", "M85")
def test_a_type_of_a_worker_that_stopped_is_unknown_where_another_serves_the_queue(
    database: str, connection: Connection
) -> None:
    only = ["types", "oldest"]
    stopped = replace(at_work(connection), name="w2", types=("report",))
    stopped.send_heartbeat()
    connection.execute("select rota.worker_declare('report')")
    wait_long(connection, job_type="report")
    lived = (
        "update rota.worker set stopped_at = rota.clock(), started_at = rota.clock() - %s * "
        "interval '1 minute' where name = 'w2'"
    )
    connection.execute(lived.encode(), [1])
    assert look(database, only=only) == (["oldest"], {}), "a drain, whose next run may come"
    connection.execute(lived.encode(), [3])
    assert look(database, only=only) == (["types"], {"oldest": "types"})
    connection.execute("update rota.worker set stopped_at = rota.clock() where name <> 'w2'")
    assert look(database, only=only) == (["oldest"], {}), "all have stopped"


@rule("M3", "M86")
def test_a_type_is_unknown_because_the_app_was_not_synced(
    database: str, connection: Connection
) -> None:
    at_work(connection)
    insert(connection, job_type="new")
    types = [{"name": "new", "queue": "default", "priority": 0}]
    assert look(database, types=types) == (["app"], {"types": "app"}), (
        "a cause is as bad as what follows from it"
    )
    changed = [{"name": "t", "queue": "email", "priority": 0}]
    found = examine(Database(database), only=["app"], types=changed)["app"]
    assert found.level is Level.WARN and "declared with other options: t (queue)" in found.what


@rule("M3", "M86")
def test_no_worker_takes_the_jobs_of_a_dead_one_because_the_database_refuses_it(
    database: str, connection: Connection
) -> None:
    hand = at_work(connection)
    insert(connection)
    hand.claim()
    connection.execute("update rota.job set locked_until = rota.clock() - interval '2 minutes'")
    assert look(database) == (["running"], {})
    hand.send_heartbeat(refused="claimer, reaper: no right")
    connection.execute("update rota.worker set refused_since = refused_since - interval '2 min'")
    assert look(database) == (["refusals"], {"running": "refusals"})


@rule("M3", "M86", "M87")
def test_jobs_that_wait_for_busy_workers_follow_from_nothing_that_others_wait_for(
    database: str, connection: Connection
) -> None:
    """A pause, a queue that nobody serves and a mistyped type explain only jobs of their own."""
    at_work(connection)
    connection.execute("""update rota.worker set queues = '{"default": null, "paused": null}'""")
    only = ["paused", "queues", "types", "oldest"]
    wait_long(connection)
    assert look(database, only=only) == (["oldest"], {})
    wait_long(connection, 3, queue="paused")
    connection.execute("select rota.queue_pause('paused')")
    assert look(database, only=only) == (["oldest"], {})
    wait_long(connection, 3, queue="email")
    assert look(database, only=only) == (["queues", "oldest"], {})
    wait_long(connection, 3, job_type="send_welcom_email")
    assert look(database, only=only) == (["queues", "types", "oldest"], {})
    connection.execute("delete from rota.job where queue = 'default' and job_type = 't'")
    assert look(database, only=only) == (["queues", "types"], {"oldest": "queues"})


@rule("M3", "M86")
def test_nothing_runs_because_this_is_a_restored_copy(
    database: str, connection: Connection
) -> None:
    at_work(connection)
    wait_long(connection)
    connection.execute("update rota.worker set heartbeat_at = heartbeat_at - interval '2 hours'")
    connection.execute("update rota.installation set database_name = 'shop', worked_at = now()")
    assert look(database) == (
        ["paused"],
        dict.fromkeys(("workers", "queues", "types", "oldest"), "paused"),
    )


CAUSES = get_args(Cause)
REASONS = [pair for count in range(3) for pair in combinations(CAUSES, count)]


@st.composite
def findings(draw: st.DrawFn) -> dict[str, Finding]:
    """Findings as checks make them: a cause follows only from causes before it."""
    made = {}
    for number in range(draw(st.integers(0, 8))):
        cause = draw(st.none() | st.sampled_from(CAUSES))
        because = draw(st.sampled_from(REASONS))
        made[f"check {number}"] = Finding(
            draw(st.sampled_from([Level.BAD, Level.WARN, Level.SKIPPED, Level.OK])),
            "what",
            "do",
            cause,
            tuple(
                why for why in because if cause is None or CAUSES.index(why) < CAUSES.index(cause)
            ),
        )
    return made


@rule("M3")
@given(findings())
def test_what_follows_hides_nothing(found: dict[str, Finding]) -> None:
    after = attribute(found)
    assert list(after) == list(found)
    is_bad = [
        {finding.level for finding in each.values()} >= {Level.BAD} for each in (found, after)
    ]
    assert is_bad[0] == is_bad[1], "the exit status is the same"
    for name, finding in after.items():
        if finding.follows_from is None:
            assert finding.level is not Level.FOLLOWS
        else:
            assert after[finding.follows_from].follows_from is None
            assert after[finding.follows_from].level in (Level.BAD, Level.WARN)
            assert found[name].level in (Level.BAD, Level.WARN)
