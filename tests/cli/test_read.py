"""What the commands show."""

from __future__ import annotations

import shlex

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.declare.release import VERSION
from tests.support.cli import CommandLine
from tests.support.rules import rule

pytestmark = pytest.mark.system

Connection = psycopg.Connection[TupleRow]


@rule("M43")
def test_a_job_shows_its_whole_timeline(rota: CommandLine) -> None:
    failed = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json").json["id"]
    rota.ok("work", "--drain")
    timeline = rota.ok("job", str(failed), "--json").json
    job, [attempt] = timeline["job"], timeline["attempts"]
    assert (job["status"], job["attempts"], job["max_attempts"], job["payload"]) == (
        "failed",
        1,
        4,
        {"day": "2026-01-14"},
    )
    assert (attempt["error_type"], attempt["message"], attempt["verdict_rule"]) == (
        "ValueError",
        "no data for 2026-01-14",
        "unknown error",
    )
    assert (attempt["release"], attempt["next_run_at"], attempt["outcome"]) == (
        "shop-1",
        job["run_at"],
        "failed",
    )
    short = rota.ok("job", str(failed))
    assert "raise ValueError" not in short.out and "--verbose" in short.err
    assert "report: failed, retries in " in short.out.splitlines()[0]
    shown = rota.ok("job", str(failed), "--verbose").out
    assert (
        attempt["worker"] in shown
        and 'raise ValueError(f"no data for {day}")' in shown
        and "transient (unknown error)" in shown
    )
    assert rota("job", "12345").error == (
        2,
        "no job 12345: it never existed, retention has deleted it, "
        "or its transaction has not committed yet",
    )


@pytest.mark.slow
def test_jobs_are_found_by_every_filter(rota: CommandLine) -> None:
    rota.ok("enqueue", "send_mail", "--payload", '{"user_id": 1}', "--key", "k")
    rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}')
    rota.ok("work", "--drain")
    mail, report = (
        rota.ok("jobs", "--type", name, "--json").json["jobs"][0]["id"]
        for name in ("send_mail", "report")
    )

    def found(*filters: str) -> list[int]:
        return [job["id"] for job in rota.ok("jobs", *filters, "--json").json["jobs"]]

    assert found() == [report, mail]
    assert found("--status", "succeeded", "--queue", "email", "--key", "k") == [mail]
    assert found("--error-type", "ValueError") == [report]
    assert found("--limit", "1") == [report] and found("--before", str(report)) == [mail]
    lines = rota.ok("jobs").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["id", "type"],
        [str(report), "report"],
        [str(mail), "send_mail"],
    ]
    assert rota.ok("jobs", "--status", "dead").out == "no jobs found\n"
    assert "'ded' is not one of" in rota("jobs", "--status", "ded").error[1]
    assert found("--error", "NO DATA for", "--since", "1h") == [report]
    assert [
        (one["job_type"], one["message"], one["attempts"])
        for one in rota.ok("errors", "--json").json["errors"]
    ] == [("report", "no data for …", 1)]
    assert "ValueError: no data for …" in rota.ok("errors", "--type", "report").out
    assert "'banana'" in rota("errors", "--since", "banana").error[1]
    assert found("--since", "2001-01-01", "--until", "2001-01-02T10:00") == []
    assert "next page" not in rota.ok("jobs", "--limit", "2").err
    assert rota.ok("jobs", "--limit", "1").err.splitlines() == [
        f"next page: --before {report}",
        "finished jobs: last 24 h; for more: --since 14d",
    ]
    assert rota.ok("jobs", "--since", "1d").err == ""
    assert (
        "--since must be a time such as 2026-01-14T09:30"
        in rota("jobs", "--since", "2001-01-32").error[1]
    )


@rule("M44", "M85")
def test_a_dead_job_that_was_retried_or_archived_says_so(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, status, failed_at, error_type) select 'report', 'dead', "
        "now(), 'My Error' from generate_series(1, 3)"
    )
    check = next(one for one in rota("doctor", "--json").json["checks"] if one["name"] == "dead")
    assert check["what"].endswith("; most: report, My Error (3)")
    command = check["what_to_do"].split("then `rota ")[1].split("`")[0]
    assert rota.ok(*shlex.split(command), "--limit", "1", "--yes", "--json").json["jobs"]
    [retried] = rota.ok("jobs", "--status", "queued", "--json").json["jobs"]
    rota.ok("archive", "--status", "dead", "--limit", "1", "--yes", "--why", "x")
    listed = rota.ok("jobs").out
    assert listed.count(f"dead, retried as {retried['id']} ") == 1
    assert listed.count("dead, archived ") == 1 and listed.count("dead, ") == 3
    head = rota.ok("job", str(retried["origin_id"])).out.splitlines()[0]
    assert head.endswith(f"report: dead, retried as {retried['id']}")


@rule("M85")
def test_the_overviews_show_the_current_state_and_count_no_further_than_they_must(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type) select 'nobody_knows' from generate_series(1, 10001)"
    )
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at) "
        "values ('later', 'email', 5, now() + interval '1 day')"
    )
    stats = rota.ok("stats", "--json").json
    assert (
        stats["jobs"] == {"queued": 10_000, "waiting": 0, "running": 0, "failed": 0, "dead": 0}
        and stats["counted_to"] == 10_000
    )
    assert stats["oldest_due_s"] >= 0
    assert "≥ 10,000" in rota.ok("stats").out and "oldest due: waiting for " in rota.ok("stats").out
    connection.execute(
        "insert into rota.stat_hour (hour, job_type, queue, succeeded, dead, ran) "
        "values (date_trunc('hour', now()), 'mail', 'q', 2000, 7, '{\"38\": 3}')"
    )
    connection.execute("update rota.stat_rollup set complete_to = now()")
    shown = rota.ok("stats").out
    assert "Ended in the last 24 h; " in shown and [
        line.split() for line in shown.splitlines() if "2,000" in line
    ] == [["mail", "2,000", "7", "932", "ms", "932", "ms"]], "a column of zeros is left out"
    assert rota.ok("stats", "--type", "mail", "--hours", "2").out.splitlines()[-1].split()[2:4] == [
        "2,000",
        "7",
    ]
    assert rota.ok("stats", "--json").json["types"][0]["dead"] == 7
    assert "failed attempts" not in shown, "no release is known"
    connection.execute(
        "update rota.stat_hour set failed_by_release = "
        '\'{"r1": 1, "r2": 1041, "r3": 5, "r4": 4, "r5\\n!": 3, "r6": 2}\''
    )
    assert (
        rota.ok("stats").out.splitlines()[-1]
        == "failed attempts: 1,041 by r2, 5 by r3, 4 by r4, 3 by r5 !, 2 by r6, …"
    )
    facts = rota.ok("stats", "--json").json
    assert facts["failed_by_release"]["r1"] == facts["types"][0]["failed_by_release"]["r1"] == 1
    default, email = rota.ok("queues", "--json").json["queues"]
    assert (default["queue"], default["due"], default["later"]) == ("default", 10_000, 0)
    assert (email["queue"], email["priority"], email["due"], email["later"]) == ("email", 5, 0, 1)
    assert "≥ 10,000" in rota.ok("queues").out
    assert rota.ok("workers").out == "no workers in the last hour\n"
    rota.ok("work", "--drain", "--queue", "email=2", "--queue", "sms", "--concurrency", "3")
    [worker] = rota.ok("workers", "--json").json["workers"]
    assert (worker["queues"], worker["release"], worker["version"]) == (
        {"email": 2, "sms": None},
        "shop-1",
        VERSION,
    )
    assert worker["name"] in rota.ok("workers").out


def test_what_a_producer_wrote_cannot_steer_the_terminal(
    rota: CommandLine, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue) values (e'[red]loud[/red]\\x1b[2J', 'default')"
    )
    shown = rota.ok("jobs").out
    assert "\x1b" not in shown and "[red]loud[/red]\N{REPLACEMENT CHARACTER}[2J" in shown
