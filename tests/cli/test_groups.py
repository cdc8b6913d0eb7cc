"""Ordered groups and concurrency limits on the command line."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.cli import CommandLine
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def held(connection: Connection) -> Connection:
    """Job 1 holds the lane `invoice:1`, jobs 2 and 3 wait for it; job 4 halts `user:2`."""
    connection.execute(
        "insert into rota.job (job_type, queue, priority, group_key, status, in_lane, locked_by, "
        "locked_until, started_at, failed_at, waits_for) values "
        "('t', 'email', 0, 'invoice:1', 'running', true, 'w', '2100-01-01Z', now(), null, null), "
        "('t', 'email', 0, 'invoice:1', 'waiting', null, null, null, null, null, null), "
        "('t', 'email', 0, 'invoice:1', 'queued', null, null, null, null, null, null), "
        "('t', 'email', 0, 'user:2', 'dead', true, null, null, null, now(), 'person')"
    )
    return connection


@rule("M60")
@pytest.mark.usefixtures("held")
def test_groups_are_listed_with_what_holds_them(rota: CommandLine, connection: Connection) -> None:
    found = rota.ok("groups", "--json").json
    assert [group["group_key"] for group in found["groups"]] == ["invoice:1", "user:2"]
    first = found["groups"][0]
    assert (first["held"], first["waiting"], first["holders"][0]["id"]) == (1, 2, 1)
    shown = rota.ok("groups").out
    assert "invoice:1" in shown
    assert "job 1 running since" in shown
    assert shown.count("job 4") == 1 and "halted by job 4 dead since" in shown
    [halted] = rota.ok("groups", "--halted", "--json").json["groups"]
    assert (halted["group_key"], halted["halted_by"]) == ("user:2", 4)
    for arguments, said in (
        (("--key", "other"), "no job holds or waits for a place in group other"),
        (("--key", "invoice:1", "--halted"), "group invoice:1 is not halted"),
    ):
        assert rota.ok("groups", *arguments).out.strip() == said
    connection.execute("delete from rota.job where status = 'dead'")
    assert rota.ok("groups", "--halted").out.strip() == "no halted groups"
    connection.execute("delete from rota.job")
    assert rota.ok("groups").out.strip() == "no ordered groups in which jobs run or wait"


@rule("M60")
@pytest.mark.usefixtures("held")
def test_groups_are_listed_in_pages(rota: CommandLine) -> None:
    page = rota.ok("groups", "--limit", "1")
    assert page.err.strip() == "next page: --after 'invoice:1'"
    last = rota.ok("groups", "--after", "invoice:1", "--limit", "1")
    assert "user:2" in last.out and last.err == ""


@rule("M11", "M60")
@pytest.mark.usefixtures("held")
def test_a_job_shows_its_lane_and_what_it_waits_for(rota: CommandLine) -> None:
    shown = rota.ok("job", "2").out
    assert "invoice:1" in shown
    assert "for its ordered group invoice:1: job 1 (running since " in shown
    assert {
        job["id"] for job in rota.ok("jobs", "--group-key", "invoice:1", "--json").json["jobs"]
    } == {1, 2, 3}
    assert "its ordered group user:2 until you retry or archive it" in rota.ok("job", "4").out


@rule("M60", "M87")
def test_a_queue_is_capped_and_uncapped(rota: CommandLine, connection: Connection) -> None:
    capped = rota.ok("queues", "set", "email", "--max-running", "20", "--why", "their limit")
    assert capped.out == "queue email: at most 20 jobs run at once (before: no limit)\n"
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, waits_for, waits_since) "
        "values ('t', 'email', 0, 'waiting', 'queue email', now())"
    )
    assert "queue email: 0 of at most 20 run, 1 blocked since " in rota.ok("queues").out
    [cap] = rota.ok("queues", "--json").json["concurrency_limits"]
    assert cap.pop("blocked_since")
    shown = {"kind": "queue", "name": "email", "max_running": 20, "running": 0, "blocked": 1}
    assert cap == shown
    freed = rota.ok("queues", "set", "email", "--no-limit", "--json").json
    assert freed == {"queue": "email", "max_running": None, "before": 20}
    assert rota.ok("queues", "--json").json["concurrency_limits"] == []
    assert connection.execute("select verb, why from rota.action order by id").fetchall() == [
        ("set_max_running", "their limit"),
        ("set_max_running", None),
    ]


@rule("M60")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --max-running or --no-limit"),
        (("--max-running", "2", "--no-limit"), "give either --max-running or --no-limit"),
        (
            ("--max-running", "0"),
            "--max-running must be a whole number from 1 to 100,000, not 0; to run none, pause",
        ),
    ],
)
def test_a_cap_that_is_unclear_is_refused(
    rota: CommandLine, arguments: tuple[str, ...], says: str
) -> None:
    status, error = rota("queues", "set", "email", *arguments).error
    assert (status, says in error) == (2, True), error


@rule("M21", "M60")
def test_a_job_is_enqueued_in_a_lane(rota: CommandLine, connection: Connection) -> None:
    payload = ("--payload", '{"user_id": 1}')
    rota.ok("enqueue", "send_mail", *payload, "--group-key", "user:1", "--group-capacity", "2")
    rota.ok("enqueue", "other", "--force", "--group-key", "user:2")
    rota.ok("schedules", "put", "s", "send_mail", *payload, "--group-key", "user:3")
    rota.ok("schedules", "trigger", "s")
    assert connection.execute(
        "select group_key, group_capacity from rota.job order by id"
    ).fetchall() == [("user:1", 2), ("user:2", None), ("user:3", None)]
    assert "user:3" in rota.ok("schedules", "show", "s").out


@rule("M60", "M81")
def test_a_schedule_of_a_type_with_a_group_key_must_name_one(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute("select rota.declare('other', group_arguments => '{n}')")
    refused = rota("schedules", "put", "s", "other", "--force")
    assert refused.error == (
        2,
        "--group-key is missing: job type 'other' declares one, made of n; give the schedule one, "
        "which its jobs have; nothing was changed",
    )
    rota.ok("schedules", "put", "s", "other", "--force", "--group-key", "g")
