"""Ordered groups and concurrency limits on the command line."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tests.support.cli import CommandLine
from tests.support.role import login_role
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@rule("M87")
@pytest.mark.parametrize(("verb", "more"), [("pause", ()), ("set", ("--no-limit",))])
def test_a_mistyped_queue_is_refused_with_the_flag_that_takes_it(
    rota: CommandLine, verb: str, more: tuple[str, ...]
) -> None:
    status, error = rota("queues", verb, "defalt", *more).error
    assert (status, error.partition(" 'defalt' ")[2]) == (
        *(2, "(did you mean 'default'?); --force takes the name as it is"),
    )
    rota.ok("queues", verb, "defalt", *more, "--force")


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


@rule("M60", "M85")
def test_jobs_that_something_holds_back_are_listed_with_what_it_is(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, status, group_key, waits_for, waits_since, run_at) values "
        "('send_mail', 'queued', null, null, null, now()), "
        "('send_mail', 'dead', 'g', 'person', now(), now()), "
        "('send_mail', 'waiting', 'g', null, null, now()), "
        "('send_mail', 'queued', null, 'limit smtp', now(), now() + interval '1 hour')"
    )
    connection.execute("update rota.job set in_lane = true where status = 'dead'")
    listed = rota.ok("jobs", "--waiting", "--json").json["jobs"]
    held = {job["id"]: job["wait"]["text"] for job in listed}
    shown = rota.ok("jobs", "--waiting").out
    assert held.keys() == {2, 3, 4} and all(text in shown for text in held.values())
    assert "which job 2 halts" in held[3] and "rate limit smtp" in held[4]


@rule("M33", "M85")
def test_a_due_job_whose_type_no_worker_knows_says_so_to_whoever_may_read_why(
    rota: CommandLine, database: str, connection: Connection
) -> None:
    connection.execute("insert into rota.job (job_type) values ('mail')")
    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('w', 'h', 1, '0', '0', '{other}', '{\"default\": 1}')"
    )
    for command in (["jobs"], ["job", "1"]):
        assert "for a worker that declares type mail: is its module" in rota.ok(*command).out
    grants = ("grant usage on schema rota to {}", "grant select on rota.jobs to {}")
    with login_role(connection, database, *grants) as role:
        viewing = make_conninfo(database, user=role)
        assert "mail" in rota.ok("jobs", "--url", viewing).out


@rule("M60", "M81")
def test_a_schedule_of_a_type_with_a_group_key_must_name_one(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute("select rota.worker_declare('other', group_arguments => '{n}')")
    refused = rota("schedules", "put", "s", "other", "--force")
    assert refused.error == (
        2,
        "--group-key is missing: job type 'other' declares one, made of n; give the schedule one, "
        "which its jobs have; nothing was changed",
    )
    rota.ok("schedules", "put", "s", "other", "--force", "--group-key", "g")
