"""Each check on a real server: green on a healthy system, red where something is the matter, and
saying what to do.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

import rota
from rota.cli import run
from rota.declare.release import VERSION
from rota.errors import ConfigurationError, DatabaseUnavailable
from rota.model.bounds import KEYS_READ
from rota.observe.doctor import CHECKS, Finding, Level, Thresholds, checks, examine
from rota.observe.doctor import server as server_checks
from rota.observe.doctor import work as work_checks
from rota.observe.events import JobSucceeded, LeaseLost
from rota.store import ops, probe
from rota.store.db import Database
from rota.store.migrate import migrate
from tests.store.planned import put, set_clock
from tests.store.work import SUCCEED, Hand, insert
from tests.support.pooler import Pooler, program
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


@pytest.mark.slow
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


def test_no_check_needs_to_write(database: str, healthy: Hand) -> None:
    found = examine(
        Database(make_conninfo(database, options="-c default_transaction_read_only=on"))
    )
    assert found["connection"].level == Level.BAD and "read-only" in found["connection"].what
    assert [check.name for check, finding in found.findings if finding.level == Level.SKIPPED] == [
        "app"
    ]


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


@rule("M3")
def test_a_long_way_to_the_server_is_reported(database: str) -> None:
    assert "round trip" in is_red(
        look(database, "connection", thresholds=Thresholds(round_trip_s=0)), Level.WARN
    )


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


def test_notify_switched_off_for_nothing_is_reported(database: str) -> None:
    assert "leave notify out" in is_red(look(database, "pooler", notify=False), Level.WARN)


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


@rule("M3")
def test_a_function_that_is_old_or_was_changed_by_hand_is_reported(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "create or replace function rota.time_bucket(p_took interval) returns int language sql as "
        "'select null::int'"
    )
    assert "changed since `rota migrate`: time_bucket" in is_red(
        look(database, "migrations"), Level.WARN
    )
    connection.execute(
        "update rota.definition set hash = 'of an older release' where name = 'time_bucket'"
    )
    assert "lacks this release's time_bucket" in is_red(look(database, "migrations"))


@pytest.fixture
def role(admin: Connection, database: str) -> Iterator[str]:
    """A role without any right."""
    name = f"doctor_{uuid4().hex[:12]}"
    admin.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            sql.SQL("drop owned by {0} cascade; drop role {0}").format(sql.Identifier(name))
        )


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


@rule("M22")
def test_a_moved_clock_is_reported(database: str, connection: Connection) -> None:
    connection.execute(
        "create or replace function rota.clock() returns timestamptz language sql stable as "
        "$$select now() + interval '90 min'$$"
    )
    assert "1 h 30 min behind" in is_red(look(database, "clock"), Level.WARN)


@rule("M14")
def test_an_open_snapshot_is_reported_with_who_holds_it(database: str) -> None:
    with psycopg.connect(make_conninfo(database, application_name="report of Ada")) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select")
        who = str(other.info.backend_pid)
        seen = look(database, "snapshot")
        assert (
            seen.level == Level.OK
            and who in seen.what
            and "report of Ada" in seen.what
            and "user postgres" in seen.what
        )
        said = is_red(
            look(database, "snapshot", thresholds=Thresholds(snapshot_s=(0, 3600))), Level.WARN
        )
        assert (
            f"session {who}" in said
            and "idle in transaction" in said
            and f"pg_terminate_backend({who})" in said
        )
        is_red(look(database, "snapshot", thresholds=Thresholds(snapshot_s=(0, 0))))


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


def _day(connection: Connection, ahead: int, schema: str = "rota") -> str:
    row = connection.execute(
        f"select to_char(({schema}.clock() at time zone 'UTC')::date + %s, 'YYYYMMDD')".encode(),
        [ahead],
    ).fetchone()
    assert row is not None
    return str(row[0])


@rule("M13")
def test_a_missing_partition_is_reported_with_what_makes_it(empty_database: str) -> None:
    database = Database(empty_database, "jobs2")
    migrate(empty_database, "jobs2")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        # Midnight is no part of this.
        set_clock(connection, f"{datetime.now(UTC):%Y-%m-%d} 12:00", "jobs2")
        for ahead, level in ((5, Level.WARN), (1, Level.BAD)):
            connection.execute(
                f"drop table jobs2.attempt_{_day(connection, ahead, 'jobs2')}".encode()
            )
            said = is_red(examine(database, only=["partitions"])["partitions"], level)
            assert f"attempt: {'tomorrow' if ahead == 1 else f'in {ahead} days'}" in said
        connection.execute(said[said.index("SELECT") :].encode())
    assert examine(database, only=["partitions"])["partitions"].level == Level.OK


@rule("M13")
def test_what_stands_in_the_archive_is_counted_and_a_closed_one_is_reported(
    database: str, connection: Connection
) -> None:
    migrate(database, archive="kept_days")
    connection.execute(
        "create table kept_days.job_history_20260101 (); create table kept_days.attempt_20260101 ()"
        "; create table kept_days.mine ()"
    )
    found = look(database, "retention")
    assert found.level == Level.OK and "2 partitions in archive kept_days (0 B)" in found.what
    connection.execute("drop schema kept_days cascade")
    said = is_red(look(database, "retention"))
    assert "archive kept_days is missing" in said and "rota migrate --archive kept_days" in said
    migrate(database, archive="")
    assert "archive" not in look(database, "retention").what


@rule("M13")
@pytest.mark.parametrize("kept", ["14 days", None])
def test_a_day_that_is_detached_and_still_in_the_schema_is_reported(
    database: str, connection: Connection, kept: str | None
) -> None:
    migrate(database, archive="kept_days")
    old, new = _day(connection, -20), _day(connection, 0)
    connection.execute("create table rota.job_history_of_mine (); create schema other")
    connection.execute(f"create table other.job_history_{old} ()".encode())
    if kept is None:
        connection.execute("delete from rota.retention where what = 'history'")
    for day in (old, new):  # that of today as between two steps of a pass
        connection.execute(
            "select rota.partition_ensure('job_history', to_date(%s, 'YYYYMMDD'))", [day]
        )
        connection.execute(
            f"alter table rota.job_history detach partition rota.job_history_{day}".encode()
        )
    said = is_red(look(database, "retention"), Level.WARN)
    assert f"still in Rota's schema: job_history_{old};" in said and "workers' logs" in said
    connection.execute(f"create table kept_days.job_history_{old} ()".encode())
    said = is_red(look(database, "retention"), Level.WARN)
    assert f"the archive has a table of this name: job_history_{old}: rename" in said
    connection.execute(f"drop table rota.job_history_{old}".encode())
    assert look(database, "retention").level == Level.OK


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


@rule("M3")
def test_connections_that_run_out_are_reported(database: str) -> None:
    is_red(
        look(database, "connections", thresholds=Thresholds(connections_share=(0.0, 1.0))),
        Level.WARN,
    )
    assert "by Rota" in is_red(
        look(database, "connections", thresholds=Thresholds(connections_share=(0.0, 0.0)))
    )


# Jobs and workers


@rule("M86")
def test_due_jobs_that_no_worker_serves_and_types_that_no_worker_knows_are_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    insert(connection, queue="emails")
    assert "'emails'" in is_red(look(database, "queues"))
    insert(connection, 3, job_type="send_welcom_email")
    said = is_red(look(database, "types"))
    assert "send_welcom_email (3 jobs, not declared): did you mean send_welcome_email?" in said
    connection.execute(
        "delete from rota.job where job_type <> 't'; update rota.worker set job_types = '{other}'"
    )
    assert "t (1 job, no worker of the last hour knows it)" in is_red(look(database, "types"))


def test_a_mistyped_type_is_reported_before_it_is_due(
    database: str, connection: Connection, healthy: Hand
) -> None:
    insert(connection, job_type="send_welcom_email", run_at=datetime.now(UTC) + timedelta(days=1))
    assert "did you mean send_welcome_email?" in is_red(look(database, "types"), Level.WARN)


def test_an_app_that_was_not_synced_is_reported(database: str, healthy: Hand) -> None:
    types = [
        {"name": "t", "queue": "email", "priority": 0},
        {"name": "new", "queue": "default", "priority": 0},
    ]
    assert "not declared: new; declared with other options: t (queue)" in is_red(
        look(database, "app", types=types), Level.WARN
    )
    assert look(database, "app").level == Level.SKIPPED


@rule("M86")
def test_a_worker_gone_silent_is_reported_and_is_bad_once_jobs_wait(
    database: str, connection: Connection, healthy: Hand
) -> None:
    set_clock(connection, NOON)
    connection.execute("update rota.worker set heartbeat_at = rota.clock() - interval '2 minutes'")
    assert "gone within the hour: hand (silent for 2 min)" in is_red(
        look(database, "workers"), Level.WARN
    )
    insert(connection)
    assert "no worker is alive" in is_red(look(database, "workers"))
    healthy.run(ops.stop("hand"))
    assert look(database, "workers").level == Level.OK  # a drain comes each minute
    is_red(look(database, "workers", thresholds=Thresholds(alone_s=0)))


@rule("M85", "M86")
def test_what_a_killed_worker_knew_and_served_is_not_called_unknown(
    database: str, connection: Connection, healthy: Hand
) -> None:
    set_clock(connection, NOON)
    insert(connection)
    connection.execute("update rota.worker set heartbeat_at = rota.clock() - interval '50 minutes'")
    assert "no worker is alive" in is_red(look(database, "workers"))
    assert look(database, "types").level == Level.OK
    assert look(database, "queues").level == Level.OK
    connection.execute("update rota.worker set heartbeat_at = rota.clock() - interval '61 minutes'")
    assert "no worker of the last hour knows it" in is_red(look(database, "types"))
    is_red(look(database, "queues"))


@rule("M32")
def test_an_outcome_that_came_too_late_is_reported_with_its_worker(
    database: str, connection: Connection, healthy: Hand
) -> None:
    healthy.send_heartbeat(rejected=2)
    assert "hand: 2" in is_red(look(database, "fences"), Level.WARN)


@rule("M86")
def test_what_the_database_refuses_a_live_worker_is_bad(
    database: str, connection: Connection, healthy: Hand
) -> None:
    healthy.send_heartbeat(refused="batch folder: the database refuses: no key")
    assert look(database, "refusals").level is Level.OK, "it may be a lock"
    connection.execute("update rota.worker set refused_since = refused_since - interval '2 min'")
    assert "hand, for 2 min: batch folder: the database refuses: no key" in is_red(
        look(database, "refusals")
    )


@rule("M33", "M35")
def test_jobs_that_do_not_end_are_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    [id_] = insert(connection)
    healthy.claim()
    set_clock(connection, NOON)
    connection.execute(
        "update rota.job set started_at = rota.clock() - interval '7 minutes', locked_until = "
        "rota.clock() + interval '1 minute'"
    )
    assert f"job {id_} t for 7 min (timeout 5 min)" in is_red(look(database, "running"), Level.WARN)
    connection.execute("update rota.job set timeout = '5 minutes 30 s'")
    assert "(timeout 5 min 30 s)" in is_red(look(database, "running"), Level.WARN)
    connection.execute("update rota.job set timeout = '8 minutes'")
    assert look(database, "running").level is Level.OK
    connection.execute("update rota.job set locked_until = rota.clock() - interval '2 minutes'")
    assert f"job {id_} t (2 min)" in is_red(look(database, "running"))


@rule("M85")
def test_due_jobs_that_wait_for_long_are_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    insert(connection)
    connection.execute("update rota.job set run_at = rota.clock() - interval '6 minutes'")
    assert "6 min" in is_red(look(database, "oldest"), Level.WARN)
    connection.execute("update rota.job set run_at = rota.clock() - interval '2 hours'")
    is_red(look(database, "oldest"))


@rule("M44")
def test_dead_jobs_are_reported(database: str, connection: Connection, healthy: Hand) -> None:
    for count, says in ((1, "1 dead job"), (2, "2 dead jobs")):
        insert(connection, 1)
        connection.execute(
            "update rota.job set status = 'dead', failed_at = rota.clock() - interval '3 days'"
        )
        said = is_red(look(database, "dead"), Level.WARN)
        assert said.startswith(f"{says}, the oldest for 3 d"), count


def _intend(connection: Connection, policy: str, *keys: str, days: int = 0) -> None:
    """Let effects have been intended by a job that is gone."""
    for key in keys:
        connection.execute(
            "insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at) "
            "values (%s, 7, 1, 1, %s, rota.clock() - %s)",
            [key, policy, timedelta(days=days)],
        )


@rule("M52")
def test_effects_that_wait_for_a_person_are_reported(
    database: str, connection: Connection, healthy: Hand
) -> None:
    assert look(database, "effects").what == "no effect is uncertain"
    _intend(connection, "skip", "push:1")
    _intend(connection, "repeat", "push:2")
    seen = look(database, "effects")
    assert (seen.level, seen.what) == (
        Level.OK,
        "2 effects may or may not have happened; their policy asks no operator to look",
    )
    _intend(connection, "dead", "mail:1", days=1)
    _intend(connection, "dead", "it's", days=3)
    said = is_red(look(database, "effects"), Level.WARN)
    assert said.startswith(
        "4 effects may or may not have happened, 2 of them waiting for an operator: the oldest is "
        '"it\'s" of job 7, for 3 d → look at the provider, then `rota effects resolve'
    )
    assert "--job" not in said
    connection.execute("update rota.effect set origin_id = 5, place = 1 where key = 'it''s'")
    assert " --job 7 --done" in is_red(look(database, "effects"), Level.WARN)
    connection.execute("update rota.effect set done_at = rota.clock()")
    assert look(database, "effects").what == "no effect is uncertain"


@rule("M52")
def test_an_effect_that_waits_for_a_person_is_seen_behind_many_that_wait_for_nobody(
    database: str, connection: Connection, healthy: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (checks, work_checks):
        monkeypatch.setattr(where, "COUNT_MAX", 2)
    _intend(connection, "skip", "push:1", "push:2", "push:3", days=9)
    _intend(connection, "dead", "m" * 255, days=1)
    said = is_red(look(database, "effects"), Level.WARN)
    assert said.startswith("≥ 2 effects may or may not have happened, 1 of them waiting")
    assert f"`rota effects resolve {'m' * 255} --done`" in said


@rule("M82")
@pytest.mark.parametrize("schema", ["rota", "jobs2"])
def test_a_schedule_that_does_not_fire_or_that_rota_paused_is_reported(
    empty_database: str, schema: str
) -> None:
    migrate(empty_database, schema)
    database = Database(empty_database, schema)

    def schedules() -> Finding:
        return examine(database, only=["schedules"])["schedules"]

    with database.open_connection("cli") as connection:
        set_clock(connection, NOON, schema)
        connection.execute(f"insert into {schema}.job_type (name) values ('t')".encode())
        connection.execute(
            f"insert into {schema}.schedule (name, job_type, cron, next_run_at, paused_at, "
            "paused_by, paused_why, disabled_at, refused) values"
            f" ('nightly', 't', '0 2 * * *', {schema}.clock() - interval '5 minutes', null, null, "
            "null, null, false),"
            f" ('to come', 't', '0 2 * * *', {schema}.clock() + interval '5 minutes', null, null, "
            "null, null, false),"
            f" ('by hand', 't', null, {schema}.clock() - interval '5 minutes', null, null, null, "
            "null, false),"
            f" ('rested', 't', '0 2 * * *', {schema}.clock() - interval '5 minutes', "
            f"{schema}.clock(), 'eva', 'holiday', null, false),"
            f" ('broken', 't', '0 2 * *', {schema}.clock() + interval '1 day', {schema}.clock(), "
            "'rota', 'no cron expression', null, true),"
            f" ('former', 't', '0 2 * * *', {schema}.clock() - interval '5 minutes', null, "
            f"null, null, {schema}.clock(), false)".encode()
        )
        assert "late: nightly by 5 min; paused by Rota: broken (no cron expression)" in is_red(
            schedules()
        )
        said = is_red(schedules())
        assert "resume" in said
        assert not any(name in said for name in ("to come", "by hand", "rested", "former"))
        connection.execute(f"delete from {schema}.schedule where name = 'broken'".encode())
        assert "stopped" not in is_red(schedules())
        connection.execute(f"select {schema}.pause_all()".encode())
        assert schedules().level == Level.OK  # nothing may run, which another check reports


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
    states = {one.name: one.last_error for one in healthy.run(ops.schedules())}
    assert states["dying"] == "its last 3 runs died"
    connection.execute("delete from rota.job where status = 'queued'")  # it succeeded
    assert "dying" not in is_red(look(database, "schedules"))


@rule("M51")
def test_a_key_of_a_job_that_was_deleted_by_hand_is_reported(
    database: str, connection: Connection
) -> None:
    insert(connection, idempotency_key="order:1\x1b[2J")
    insert(connection, idempotency_key="order:2")
    assert look(database, "keys").level == Level.OK
    connection.execute("delete from rota.job where idempotency_key like 'order:1%'")
    said = is_red(look(database, "keys"), Level.WARN)
    assert said.startswith("1 live job was deleted") and "order:1" in said and said.isprintable()


@rule("M51")
def test_where_not_all_keys_were_read_the_doctor_does_not_say_that_all_is_well(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, idempotency_key) "
        "select 't', id::text from generate_series(1, %s) id",
        [KEYS_READ + 1],
    )
    connection.execute("delete from rota.job where idempotency_key = %s", [str(KEYS_READ + 1)])
    found = look(database, "keys")
    assert found.level == Level.SKIPPED and "the others were not read" in found.what
    select = found.what_to_do[found.what_to_do.index("SELECT") :]
    assert connection.execute(select.encode()).fetchall() == [("t", str(KEYS_READ + 1))]
    connection.execute("delete from rota.job where idempotency_key = '1'")
    assert is_red(look(database, "keys"), Level.WARN).startswith("≥ 1 live job was deleted")


@rule("M82")
def test_of_many_schedules_that_do_not_fire_five_are_named_and_all_are_counted(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.schedule (name, job_type, cron, next_run_at) "
        "select 's' || n, 't', '0 2 * * *', now() - n * interval '1 hour' "
        "from generate_series(1, 5) n"
    )
    assert is_red(look(database, "schedules")).startswith("late: s5 by 5 h, s4 by 4 h, ")
    connection.execute(
        "insert into rota.schedule (name, job_type, cron, paused_at, paused_by, refused) "
        "select 'r' || n, 't', 'often', now(), 'rota', true from generate_series(1, 1200) n"
    )
    said = is_red(look(database, "schedules"))
    assert said.startswith("1,205 schedules do not fire, such as these; late: s5 by 5 h, ")


@rule("M82", "M86")
def test_a_tick_that_a_user_s_trigger_refuses_is_reported_with_its_reason(
    database: str, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    app = rota.App(database)
    app.job("t")(lambda: None)
    set_clock(connection, "2031-05-10 11:30:00")
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('s', 't', '@hourly')"
    )
    app.drain()
    connection.execute("alter table rota.job add constraint mine check (schedule <> 's')")
    set_clock(connection, "2031-05-10 12:02:00")
    app.drain()
    assert "late: s by 2 min (its job cannot be enqueued: " in is_red(look(database, "schedules"))
    assert '"mine"' in is_red(look(database, "schedules"))
    run(["schedules", "--url", database, "--schema", "rota"])
    assert " failing " in capsys.readouterr().out
    run(["schedules", "show", "s", "--url", database, "--schema", "rota"])
    assert '"mine"' in capsys.readouterr().out
    connection.execute("update rota.alert_rule set period = '1 minute'")
    set_clock(connection, "2031-05-10 12:05:00")  # no worker has just started
    [found] = app._database.run(ops.find_alert_matches("schedule overdue"))
    assert found.message.startswith(
        "schedule s was due at 2031-05-10 12:00:00+00:00: its job cannot"
    )
    app.close()


@rule("M82", "M86")
@pytest.mark.parametrize("schema", ["rota", "jobs2"])
def test_a_cron_expression_that_a_drain_could_not_read_is_reported_by_doctor_and_alert(
    empty_database: str, schema: str
) -> None:
    migrate(empty_database, schema)
    app = rota.App(empty_database, schema=schema)
    app.job("t")(lambda: None)
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            (
                f"insert into {schema}.schedule (name, job_type, cron) values ('broken', 't', 'at "
                f"noon')"
            ).encode()
        )
        app.drain()
        assert "paused by Rota: broken (" in is_red(
            examine(app._database, only=["schedules"])["schedules"]
        )
        connection.execute(
            (
                f"update {schema}.alert_rule set period = '1 second' where kind = "
                f"'schedule_overdue'"
            ).encode()
        )
        connection.execute(
            f"update {schema}.schedule set paused_at = now() - interval '2 seconds'".encode()
        )
        [found] = app._database.run(ops.find_alert_matches("schedule overdue"))
    assert found.subject == "broken" and found.message.startswith(
        "schedule broken is paused by Rota: "
    )
    app.close()


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

    connection.execute(
        "select rota.pause_all(now() + interval '1 hour', 'the mail server moves', 'eva')"
    )
    said = is_red(look(database, "paused"), Level.WARN)
    assert (
        "everything is paused for" in said
        and ", until 20" in said
        and "by eva: the mail server moves (1 job is due)" in said
        and "resume --all" in said
    )
    connection.execute("update rota.installation set paused_until = now()")
    assert "everything" not in is_red(look(database, "paused"), Level.WARN)
    # As a dump brings it; no worker has checked yet.
    connection.execute("update rota.installation set database_name = 'shop', worked_at = now()")
    assert (
        "a copy of another database: its workers start paused: recorded as database shop"
        in is_red(look(database, "paused"))
    )
    connection.execute(
        "update rota.installation set database_name = current_database(), "
        "copied = 'recorded as database shop'"
    )
    assert "a copy of another database" in is_red(look(database, "paused"))


@pytest.mark.parametrize(
    ("kind", "advice"),
    [("replication slot", "pg_drop_replication_slot('x')"), ("standby", "hot_standby_feedback")],
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


@rule("M3")
def test_a_function_that_was_changed_by_hand_and_answers_nothing_ends_no_other_look(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "create or replace function rota.dead_jobs(p_limit int, p_since timestamptz default "
        "'-infinity', p_job_type text default null) returns table (jobs bigint, oldest_at "
        "timestamptz, job_types text[]) language sql as "
        "$$ select 1, now(), '{}'::text[] where false $$"
    )
    found = examine(Database(database), only=["dead", "workers"])
    assert "no answer to doctor_jobs" in is_red(found["dead"], Level.WARN)
    assert found["workers"].level == Level.OK


@rule("M61")
def test_urgent_jobs_that_wait_for_the_only_slot_are_seen(
    database: str, connection: Connection, healthy: Hand
) -> None:
    connection.execute(
        'update rota.worker set queues = \'{"default": null, "mail": 1}\', slots = 10'
    )
    assert look(database, "priority").level == Level.OK
    connection.execute("insert into rota.job (job_type, queue, priority) values ('t', 'mail', 1)")
    said = is_red(look(database, "priority"), Level.WARN)
    assert "'mail' (1 worker of one slot)" in said and "--queue mail=2" in said

    connection.execute("update rota.worker set queues = '{\"default\": null}', slots = 1")
    assert look(database, "priority").level == Level.OK, "nothing in its queue is urgent"
    connection.execute("update rota.job_type set priority = 5 where name = 't'")
    assert "'default' (1 worker of one slot)" in is_red(look(database, "priority"), Level.WARN)

    connection.execute("update rota.worker set slots = null")
    assert look(database, "priority").level == Level.OK, "a worker in SQL"
    connection.execute("update rota.worker set slots = 2")
    assert look(database, "priority").level == Level.OK
