"""Each check on a real server: green on a healthy system, red where something is the matter, and
saying what to do.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

import rota
from rota.cli import run
from rota.declare.release import VERSION
from rota.errors import ConfigurationError, DatabaseUnavailable
from rota.observe.doctor import server as server_checks
from rota.observe.doctor.checks import CHECKS, examine
from rota.observe.doctor.finding import Finding, Level, Thresholds
from rota.observe.events import JobSucceeded, LeaseLost
from rota.store import ops, probe
from rota.store.db import Database
from rota.store.migrate import migrate
from tests.store.planned import move_clock, put, set_clock
from tests.store.work import SUCCEED, Hand, insert
from tests.support.pooler import Pooler, program
from tests.support.role import login_role
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.hand import Hand as Worker

Connection = psycopg.Connection[TupleRow]
NOON = "2031-05-10 12:00:00"
needs_pooler = pytest.mark.skipif(
    program() is None,
    reason="PGBOUNCER IS NOT INSTALLED: the pooler's check was not tried behind one",
)


@pytest.fixture(autouse=True)
def patient_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow slow queries: only one test checks that a slow query is ended."""
    monkeypatch.setattr(probe, "QUERY_S", 30.0)


@pytest.fixture
def healthy(connection: Connection) -> Hand:
    """A database at work."""
    return at_work(connection)


def at_work(connection: Connection) -> Hand:
    """A worker that is alive and knows its type and queue, and a job that it has done."""
    connection.execute("insert into rota.job_type (name) values ('t'), ('send_welcome_email')")
    hand = Hand(connection, types=("t", "send_welcome_email"))
    hand.send_heartbeat(queues='{"default": null}', slots=10)
    insert(connection)
    [job] = hand.claim().jobs
    hand.settle((job, SUCCEED))
    return hand


def look(database: str, *only: str, thresholds: Thresholds | None = None, **said: Any) -> Finding:
    """The finding of one check."""
    return examine(Database(database), only=only, thresholds=thresholds, **said)[only[0]]


def is_red(finding: Finding, level: Level = Level.BAD) -> str:
    """What a finding says, which must be of that level, and advise something."""
    assert finding.level == level, finding
    assert finding.what_to_do, finding
    return f"{finding.what} → {finding.what_to_do}"


@pytest.mark.nightly
@pytest.mark.system
@rule("M3", "M14")
def test_on_a_healthy_system_every_check_is_green_until_autovacuum_is_off(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "NOTIFY_S", 30.0)
    url = own_server.url()
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        # As servers of tests are set up.
        assert "autovacuum is off on this server" in is_red(look(url, "vacuum"))
        connection.execute("alter system set autovacuum = on")
        connection.execute("select pg_reload_conf()")
        at_work(connection)
        eventually(
            lambda: look(url, "vacuum").level == Level.OK, what="the server has read its settings"
        )

        types = [{"name": "t", "queue": "default", "priority": 0}]
        found = examine(
            Database(url), notify=True, types=types, thresholds=Thresholds(round_trip_s=5)
        )
        assert [
            (check.name, finding.what)
            for check, finding in found.findings
            if finding.level != Level.OK
        ] == []
        assert [check.name for check, _ in found.findings] == [check.name for check in CHECKS]

        insert(connection)
        connection.execute("update rota.job set status = 'dead', failed_at = rota.clock()")
        doctor = ["doctor", "--url", url, "--schema", "rota"]
        assert (run(doctor), run([*doctor, "--strict"])) == (0, 1)  # only something to look at
        connection.execute("delete from rota.job")

        connection.execute("alter table rota.job set (autovacuum_enabled = off)")
        said = is_red(look(url, "vacuum"))
        assert "autovacuum is off for job" in said
        for statement in said[said.index("ALTER") :].split("; "):
            connection.execute(statement.encode())
        insert(connection, 20)
        connection.execute("update rota.job set meta = '{}'")
        none = Thresholds(dead_rows=0, dead_share=0)
        eventually(
            lambda: look(url, "vacuum", thresholds=none).level == Level.WARN,
            what="the server has counted",
        )
        assert " dead and " in is_red(look(url, "vacuum", thresholds=none), Level.WARN)


# Connection, pooler, listen


@rule("M3")
def test_an_unreachable_server_is_an_error_and_no_finding(
    database: str, server: PostgresServer
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(DatabaseUnavailable):
            examine(Database(f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/x"))
    with pytest.raises(ConfigurationError, match="does not exist"):
        examine(Database(server.url("nowhere")))


@pytest.mark.system
@needs_pooler
@rule("M3")
def test_a_transaction_pooler_is_noticed_and_the_notify_that_does_not_pass_it(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    name = database.rpartition("/")[2]
    with Pooler(server, tmp_path / "pgbouncer.log") as pooler:
        refused = examine(Database(pooler.url(name)), notify=True, only=["pooler", "migrations"])
        assert (
            is_red(refused["pooler"]).count("refuses Rota's session settings") == 1
            and "notify=False" in refused["pooler"].what_to_do
        )
        assert refused["migrations"].level == Level.OK  # the other checks continue
        polls = examine(
            Database(pooler.url(name), notify=False), notify=False, only=["pooler", "listen"]
        )
        assert (polls["pooler"].level, polls["listen"].level) == (Level.OK, Level.SKIPPED)
    with Pooler(
        server, tmp_path / "pgbouncer.log", more="ignore_startup_parameters = options"
    ) as pooler:
        listens = examine(Database(pooler.url(name)), notify=True, only=["pooler", "listen"])
        assert "share sessions" in is_red(listens["pooler"])
        assert "did not arrive" in is_red(listens["listen"], Level.FOLLOWS)


# The schema


@rule("M3")
def test_a_schema_that_is_missing_old_foreign_or_too_new_is_reported(
    empty_database: str, database: str, connection: Connection
) -> None:
    found = examine(Database(empty_database))
    assert (
        "0001_tables" in is_red(found["migrations"])
        and "rota migrate" in found["migrations"].what_to_do
    )
    assert [check.name for check, _ in found.at(Level.BAD)] == ["migrations"]  # said once
    assert "see migrations" in is_red(found["dead"], Level.SKIPPED)
    connection.execute(
        "insert into rota.migration (number, name, oldest_release, release) values (9999, "
        "'9999_more', '0.0.1', '9')"
    )
    assert "9999_more" in is_red(look(database, "migrations"), Level.WARN)
    connection.execute("update rota.migration set oldest_release = '999.0.0' where number = 9999")
    assert f"this is {VERSION}" in is_red(look(database, "migrations"))
    connection.execute(
        "delete from rota.migration where number = 9999; update rota.migration set name = "
        "'0001_mine' where number = 1"
    )
    assert "0001_mine" in is_red(look(database, "migrations"))
    connection.execute("delete from rota.migration where number = 1")
    assert "lacks 0001_tables" in is_red(look(database, "migrations"))


@pytest.fixture
def role(admin: Connection, database: str) -> Iterator[str]:
    """A role without any right."""
    with login_role(admin, database) as name:
        yield name


@rule("M3")
def test_what_a_role_may_not_do_is_reported_and_what_it_may_not_see_is_skipped(
    database: str, role: str, connection: Connection
) -> None:
    def grant(what: str) -> None:
        connection.execute(sql.SQL(what).format(sql.Identifier(role)))

    url = make_conninfo(database, user=role)
    nothing = examine(Database(url))
    assert "not permitted" in nothing["dead"].what and nothing["dead"].level == Level.SKIPPED
    assert "not permitted" in is_red(nothing["privileges"])
    assert nothing["snapshot"].level == Level.OK  # needs no right of Rota's
    grant("grant usage on schema rota to {0}; grant select on all tables in schema rota to {0}")
    reads = examine(Database(url))
    assert "can read" in is_red(reads["privileges"], Level.WARN)
    assert [check.name for check, finding in reads.findings if finding.level == Level.SKIPPED] == [
        "app"
    ]
    grant("revoke select on rota.job from {}")
    assert look(url, "dead").level == Level.SKIPPED
    with psycopg.connect(make_conninfo(url, application_name="rota claim")):
        assert role in is_red(look(database, "privileges"))


@rule("M3", "M22")
def test_a_moved_clock_and_what_is_over_a_threshold_are_reported(
    database: str, connection: Connection
) -> None:
    for check, said, level, thresholds in (
        ("connection", "round trip", Level.WARN, Thresholds(round_trip_s=0)),
        ("connections", "by Rota", Level.WARN, Thresholds(connections_share=(0.0, 1.0))),
        ("connections", "by Rota", Level.BAD, Thresholds(connections_share=(0.0, 0.0))),
    ):
        assert said in is_red(look(database, check, thresholds=thresholds), level)
    brief = make_conninfo(database, options="-c idle_in_transaction_session_timeout=4900")
    assert "timeout is 4.9 s" in is_red(look(brief, "connection"), Level.WARN)
    is_red(look(database, "pooler", notify=False), Level.WARN)  # for nothing
    move_clock(connection, "90 min")
    assert "1 h 30 min behind" in is_red(look(database, "clock"), Level.WARN)


@rule("M14")
def test_an_open_snapshot_is_reported_with_who_holds_it(database: str) -> None:
    with psycopg.connect(make_conninfo(database, application_name="report of Ada")) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select")
        who = other.info.backend_pid
        seen = look(database, "snapshot")
        assert seen.level == Level.OK and str(who) in seen.what and "report of Ada" in seen.what
        warns = Thresholds(snapshot_s=(0, 3600))
        said = is_red(look(database, "snapshot", thresholds=warns), Level.WARN)
        assert f"pg_terminate_backend({who})" in said
        is_red(look(database, "snapshot", thresholds=Thresholds(snapshot_s=(0, 0))))


@pytest.mark.nightly
@pytest.mark.system
@rule("M14")
def test_a_prepared_transaction_that_holds_back_vacuum_is_reported(
    own_server: PostgresServer,
) -> None:
    url = own_server.url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter system set max_prepared_transactions = 2")
    own_server.restart()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("begin; create table mine (a int); prepare transaction 'left over'")
    said = is_red(look(url, "snapshot", thresholds=Thresholds(snapshot_s=(0, 0))))
    assert "prepared transaction left over" in said and "ROLLBACK PREPARED 'left over'" in said


def _day(connection: Connection, ahead: int) -> str:
    [(day,)] = connection.execute(
        "select to_char((rota.clock() at time zone 'UTC')::date + %s, 'YYYYMMDD')", [ahead]
    ).fetchall()
    return str(day)


@rule("M13")
def test_a_missing_partition_is_reported_with_what_makes_it(
    database: str, connection: Connection
) -> None:
    # Midnight is no part of this.
    set_clock(connection, f"{datetime.now(UTC):%Y-%m-%d} 12:00")
    for ahead, level in ((5, Level.WARN), (1, Level.BAD)):
        connection.execute(f"drop table rota.attempt_{_day(connection, ahead)}".encode())
        said = is_red(look(database, "partitions"), level)
        assert f"attempt: {'tomorrow' if ahead == 1 else f'in {ahead} days'}" in said
    connection.execute(said[said.index("SELECT") :].encode())
    assert look(database, "partitions").level == Level.OK


@rule("M13")
def test_a_day_that_is_detached_and_still_in_the_schema_is_reported(
    database: str, connection: Connection
) -> None:
    migrate(database, archive="kept_days")
    old, new = _day(connection, -20), _day(connection, 0)
    connection.execute("create table rota.job_history_of_mine ()")
    for day in (old, new):  # that of today as between two steps of a pass
        connection.execute(
            "select rota.partition_ensure('job_history', to_date(%s, 'YYYYMMDD'))", [day]
        )
        connection.execute(
            f"alter table rota.job_history detach partition rota.job_history_{day}".encode()
        )
    said = is_red(look(database, "retention"), Level.WARN)
    assert f"still in Rota's schema: job_history_{old};" in said
    connection.execute(f"create table kept_days.job_history_{old} ()".encode())
    said = is_red(look(database, "retention"), Level.WARN)
    assert f"the archive has a table of this name: job_history_{old}: rename" in said
    connection.execute(f"drop table rota.job_history_{old}".encode())
    found = look(database, "retention")
    assert found.level == Level.OK and "1 partition in archive kept_days" in found.what
    connection.execute("drop schema kept_days cascade")
    assert "archive kept_days is missing" in is_red(look(database, "retention"))


@rule("M13")
def test_history_that_should_be_gone_or_is_half_detached_is_reported(
    database: str, connection: Connection
) -> None:
    old = _day(connection, -20)
    connection.execute(
        "select rota.partition_ensure('job_history', to_date(%s, 'YYYYMMDD'))", [old]
    )
    assert f"job_history_{old} should have been removed" in is_red(
        look(database, "retention"), Level.WARN
    )
    with psycopg.connect(database) as reader:
        reader.execute("select count(*) from rota.job_history")
        with psycopg.connect(database, autocommit=True) as other:
            other.pgconn.send_query(
                (
                    f"alter table rota.job_history detach partition rota.job_history_{old} "
                    f"concurrently"
                ).encode()
            )
            eventually(
                lambda: (
                    connection.execute("select from pg_inherits where inhdetachpending").fetchone()
                    is not None
                )
            )
            other.cancel_safe()  # while it waits for the reader
            while other.pgconn.get_result() is not None:
                pass
        assert "half detached" in is_red(look(database, "retention"), Level.WARN)


# Jobs and workers


@rule("M82")
def test_a_schedule_that_does_not_fire_or_that_rota_paused_is_reported(
    database: str, connection: Connection
) -> None:
    set_clock(connection, NOON)
    connection.execute("insert into rota.job_type (name) values ('t')")
    late, soon = "2031-05-10 11:55Z", "2031-05-10 12:05Z"
    put(connection, "nightly", "0 2 * * *", next_run_at=late)
    put(connection, "to come", "0 2 * * *", next_run_at=soon)
    put(connection, "by hand", None, next_run_at=late)
    put(connection, "rested", "0 2 * * *", next_run_at=late, paused_at=late, paused_by="eva")
    put(connection, "former", "0 2 * * *", next_run_at=late, disabled_at=late)
    put(
        connection, "broken", "0 2 * *", next_run_at=soon,
        paused_at=late, paused_by="rota", paused_why="no cron expression", refused=True,
    )  # fmt: skip
    said = is_red(look(database, "schedules"))
    assert "late: nightly by 5 min; paused by Rota: broken (no cron expression)" in said
    assert not any(name in said for name in ("to come", "by hand", "rested", "former"))
    connection.execute("select rota.pause_all()")
    connection.execute("delete from rota.schedule where name = 'broken'")
    assert look(database, "schedules").level == Level.OK  # another check reports the pause


@rule("M82")
def test_a_schedule_that_fires_and_achieves_nothing_is_bad_and_called_failing(
    database: str, connection: Connection, healthy: Hand
) -> None:
    for name, job_type in (("dying", "t"), ("strange", "unheard_of")):
        put(connection, name, job_type=job_type)
    dead = "status, failed_at) select 't', 'dead', rota.clock() from generate_series(1, 3)"

    def run(columns: str) -> None:
        connection.execute(
            "with run as (insert into rota.job (job_type, " + columns + " returning id) "
            "insert into rota.schedule_run (schedule, job) select 'dying', id from run"
        )

    run(dead.replace("3)", "2)"))
    run("run_at) values ('t', rota.clock())")
    connection.execute(  # while it goes on
        "select rota.schedule_skip(s, rota.clock(), 'no') from rota.schedule s, "
        "generate_series(1, 12) where s.name = 'dying'"
    )
    said = is_red(look(database, "schedules"))
    assert "failing: strange (its type 'unheard_of' is not declared) →" in said
    run(dead.replace("3)", "1)"))
    said = is_red(look(database, "schedules"))
    assert "failing: dying (its last 3 runs died), strange (its type" in said
    states = {schedule.name: schedule.last_error for schedule in healthy.run(ops.schedules())}
    assert states["dying"] == "its last 3 runs died"
    connection.execute("delete from rota.job where status = 'queued'")  # it succeeded
    assert "dying" not in is_red(look(database, "schedules"))


@rule("M87")
def test_what_is_paused_is_reported(database: str, connection: Connection) -> None:
    connection.execute(
        "insert into rota.queue (name, paused_at, paused_by, paused_why) "
        "values ('email', now() - interval '3 h', 'eva', 'moves')"
    )
    insert(connection, queue="email")
    connection.execute(
        "insert into rota.queue (name, paused_at, paused_until) values ('over', now(), now() - "
        "interval '1 s')"
    )
    said = is_red(look(database, "paused"), Level.WARN)
    assert "paused: 'email' for 3 h, by eva: moves (1 job is due) →" in said
    connection.execute("select rota.pause_all(now() + interval '1 hour', 'it moves', 'eva')")
    assert "everything is paused for" in is_red(look(database, "paused"), Level.WARN)
    connection.execute("update rota.installation set paused_until = now()")
    assert "everything" not in is_red(look(database, "paused"), Level.WARN)
    connection.execute("update rota.installation set database_name = 'shop', worked_at = now()")
    assert "a copy of another database" in is_red(look(database, "paused"))


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("replication slot", "pg_drop_replication_slot('x')"),
        ("standby", "hot_standby_feedback"),
        ("prepared transaction", "ROLLBACK PREPARED 'x'"),
    ],
)
def test_a_slot_or_a_standby_that_lags_is_graded_by_its_age_in_transactions(
    kind: str, advice: str
) -> None:
    holder = {
        "kind": kind,
        "who": "x",
        "user": None,
        "application": None,
        "state": "inactive",
        "held_s": None,
        "is_hidden": False,
    }
    for xids, level in ((10, Level.OK), (2_000_000, Level.WARN), (30_000_000, Level.BAD)):
        found = server_checks.snapshot({"holders": [{**holder, "xids": xids}]}, Thresholds())
        assert found.level == level and (level == Level.OK or advice in is_red(found, level))


@pytest.mark.system
@rule("M32")
async def test_a_worker_counts_what_it_did_and_what_came_too_late(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.lease_keeper.HEARTBEAT_S", 3600.0)
    jobs = rota.Jobs()
    go, begun = asyncio.Event(), asyncio.Barrier(3)

    @jobs.job("t")
    async def wait() -> None:
        await begun.wait()
        await go.wait()

    insert(connection, 2)
    async with Worker(database, jobs) as worker:
        await begun.wait()
        # The heartbeats at its start and the lease keeper's first, which have the counts too, are
        # past: from now on only the last one, at its stop, has them.
        beaten = "select heartbeat_at > started_at from rota.worker"
        await asyncio.to_thread(
            eventually, lambda: connection.execute(beaten).fetchone() == (True,)
        )
        connection.execute(
            "update rota.job set claims = claims + 1 where id = (select min(id) from rota.job)"
        )
        go.set()
        await worker.heard(LeaseLost)
        await worker.heard(JobSucceeded)
    counts = connection.execute(
        "select succeeded, failed, dead, rejected, slots from rota.worker"
    ).fetchall()
    assert counts == [(1, 0, 0, 1, 10)]
    assert f"{worker.name}: 1" in is_red(look(database, "fences"), Level.WARN)


# Outgrown


@rule("M3")
def test_each_sign_that_a_team_outgrows_it_is_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    for number in range(3):
        replace(healthy, name=f"team {number}", types=(f"t{number}",)).send_heartbeat(
            queues='{"one": 1}'
        )
    [id_] = insert(connection)
    [job] = healthy.claim().jobs
    healthy.run(ops.progress([(job.id, job.claims, '{"done": 1}')]))
    assert job.id == id_
    for number in (1, 2):
        healthy.run(ops.stop(f"team {number}"))
    insert(connection, queue="one")
    none = Thresholds(workers=0, single_s=0, live_jobs=-1, teams=2, history_bytes=0, reporting=0)
    found = examine(
        Database(database),
        thresholds=none,
        only=["contention", "order", "fan-out", "teams", "replay", "streaming"],
    )
    for check, finding in found.findings:
        assert "docs/operate/outgrown.md" in is_red(finding, Level.WARN), check.name
    assert "2 groups" in found["teams"].what and "'one'" in found["order"].what


@rule("M3")
def test_sessions_that_wait_for_a_lock_are_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    with (
        psycopg.connect(database) as holder,
        psycopg.connect(database) as first,
        psycopg.connect(database) as second,
    ):
        holder.execute("lock table rota.queue")
        for waiting in (first, second):
            waiting.execute("set application_name = 'rota claim'")
            waiting.pgconn.send_query(b"select from rota.queue")
        # That they wait is seen a moment after they asked; and after a second each looks up to see
        # whether it waits for itself.
        found = eventually(
            lambda: (now := look(database, "contention")).level == Level.WARN and now,
            what="both wait",
        )
        assert found and "2 of Rota's" in is_red(found, Level.WARN)
        first.close()
        second.close()


@rule("M3")
def test_a_look_that_takes_too_long_is_given_up_and_spoils_no_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "QUERY_S", 4.0)
    with psycopg.connect(database) as holder:
        holder.execute("lock table rota.worker")
        found = examine(Database(database), only=["workers", "keys"])
    assert "no answer within 4 s" in is_red(found["workers"], Level.WARN)
    assert found["keys"].level == Level.OK
