"""The gauges of the database, and the worker that reads them for all."""

from __future__ import annotations

from pathlib import Path

import psycopg
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota.model.metric import GAUGES
from rota.store import ops
from tests.cli.here import Here
from tests.store.work import FAIL, GIVE_UP, Hand, insert
from tests.support.rules import rule
from tests.worker.table import Connection


def read(app: rota.App) -> dict[tuple[str, str], float]:
    """The gauges by name and label."""
    found = app.queues.metrics()
    values = {(gauge.name, "".join(gauge.labels.values())): gauge.value for gauge in found}
    assert len(values) == len(found)
    assert {gauge.name: [*gauge.labels] for gauge in found} == {
        name: [label] if label else []
        for name, (label, _) in GAUGES.items()
        if any(gauge.name == name for gauge in found)
    }
    return values


@rule("M85")
def test_jobs_are_counted_by_queue_and_by_what_keeps_them_from_running(
    app: rota.App, connection: Connection
) -> None:
    ten_s_ago = "clock_timestamp() - interval '10 seconds'"
    insert(connection, 3, queue="mail")
    insert(connection, 2, queue="mail", priority=5)
    insert(connection, 4, queue="pdf")
    insert(connection, 1, queue="later")
    connection.execute(f"update rota.job set run_at = {ten_s_ago} where queue = 'mail'")
    connection.execute("update rota.job set run_at = now() + interval '1h' where queue = 'later'")
    app.queues.pause("pdf")
    insert(connection, 6, queue="own")
    hand = Hand(connection, queues=["own"])
    first, second, third, *_ = hand.claim(6).jobs
    hand.settle((first, GIVE_UP), (second, GIVE_UP), (third, FAIL))
    for waits_for, jobs in (
        ("limit smtp", 2),
        ("breaker stripe", 3),
        ("type t", 4),
        ("queue q", 5),
    ):
        insert(connection, jobs, waits_for=waits_for, queue="blocked")
    insert(connection, 7, status="waiting", waits_for="job 1", queue="blocked")
    insert(connection, 8, status="waiting", group_key="a", queue="blocked")

    seen = read(app)
    assert seen["rota_due_jobs", "mail"] == 5 and seen["rota_due_jobs", "pdf"] == 4
    assert seen["rota_due_jobs", "later"] == 0 and seen["rota_oldest_due_job_seconds", "later"] == 0
    assert 10 <= seen["rota_oldest_due_job_seconds", "mail"] < 600
    assert seen["rota_running_jobs", "own"] == 3
    assert seen["rota_dead_jobs", ""] == 2
    assert {name[1]: value for name, value in seen.items() if name[0] == "rota_blocked_jobs"} == {
        "rate_limit": 2,
        "breaker": 3,
        "concurrency_limit": 9,
        "awaited_job": 7,
        "ordered_group": 8,
        "pause": 4,
    }


@rule("M85", "M63", "M82")
def test_breakers_workers_and_schedules_are_counted(app: rota.App, connection: Connection) -> None:
    @app.job("pay", breaker=rota.Breaker("stripe"))
    def pay() -> None: ...

    app.schedule("nightly", "0 2 * * *", pay.new())
    app.sync()
    assert read(app)["rota_open_breakers", "stripe"] == 0
    app.breakers.trip("stripe", duration="1h")
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues, slots,"
        " heartbeat_at, started_at) select n, 'h', 1, '1', '1', '{}', '{}', 10,"
        " clock_timestamp() - ago, clock_timestamp() - interval '10m' from (values ('a', interval"
        " '0'), ('b', '40s'), ('c', '20m')) w(n, ago)"
    )
    connection.execute(
        "update rota.schedule set next_run_at = clock_timestamp() - interval '6 minutes'"
    )
    seen = read(app)
    assert seen["rota_open_breakers", "stripe"] == 1
    states = [seen["rota_workers", state] for state in ("alive", "silent", "gone")]
    assert states == [1, 1, 1] and seen["rota_worker_slots", ""] == 20
    assert seen["rota_overdue_schedules", ""] == 1


@rule("M14")
def test_tables_are_measured_with_their_partitions_and_so_is_what_keeps_vacuum_back(
    app: rota.App, connection: Connection, database: str
) -> None:
    insert(connection, 500)
    connection.execute("analyze rota.job")
    before = read(app)
    assert before["rota_table_rows", "job"] >= 500 and before["rota_table_bytes", "job"] >= 8192
    assert before["rota_table_bytes", "job_history"] > 0
    assert not [name for name in before if name[1].startswith("job_history_")]
    with psycopg.connect(database) as idle:
        idle.execute("select pg_current_xact_id()")  # holds it back from here on
        for _ in range(3):
            insert(connection, 1)
        idle_now = read(app)
    assert idle_now["rota_vacuum_horizon_transactions", "session"] >= 3
    assert idle_now["rota_vacuum_horizon_seconds", "session"] > 0
    assert before["rota_vacuum_horizon_transactions", "replication_slot"] == 0


@rule("M85")
def test_one_worker_reads_them_until_it_is_gone_or_asks_no_more(
    app: rota.App, connection: Connection
) -> None:
    def take(worker: str) -> bool:
        return app._database.run(ops.take_metrics(worker))

    assert not take("never alive") or take("b")  # one that has no row gives way at once
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues)"
        " select n, 'h', 1, '1', '1', '{}', '{}' from unnest('{a,b}'::text[]) n"
    )
    assert take("b") and take("b") and not take("a")
    connection.execute("update rota.worker set stopped_at = clock_timestamp() where name = 'b'")
    assert take("a") and not take("b")
    connection.execute("update rota.worker set stopped_at = null")
    connection.execute("update rota.installation set metrics_until = metrics_until - interval '2m'")
    assert take("b") and not take("a")


@rule("M85")
def test_the_command_prints_what_prometheus_reads_and_the_same_in_json(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    insert(connection, 2, queue='a "queue"\\ of\nmine')
    rota = Here(tmp_path, ROTA_DATABASE_URL=database)
    families = {
        family.name: family for family in text_string_to_metric_families(rota.ok("metrics").out)
    }
    assert {family.type for family in families.values()} == {"gauge"}
    [due] = families["rota_due_jobs"].samples
    assert (due.labels, due.value) == ({"queue": 'a "queue"\\ of\nmine'}, 2.0)
    found = rota.ok("metrics", "--json").json["metrics"]
    assert {"name": "rota_due_jobs", "labels": due.labels, "value": 2.0} in found
    assert {gauge["name"] for gauge in found} == families.keys()
