"""What the commands show."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from rota.declare.release import VERSION
from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@rule("M43")
def test_a_job_shows_its_whole_timeline(rota: Here) -> None:
    made = rota.ok("enqueue", "report", "--payload", '{"day": "2026-01-14"}', "--json")
    failed = str(made.json["id"])
    rota.ok("work", "--drain")
    timeline = rota.ok("job", failed, "--json").json
    job, [attempt] = timeline["job"], timeline["attempts"]
    assert (job["status"], job["attempts"], job["max_attempts"]) == ("failed", 1, 4)
    assert (attempt["error_type"], attempt["message"]) == ("ValueError", "no data for 2026-01-14")
    assert (attempt["release"], attempt["next_run_at"]) == ("shop-1", job["run_at"])
    short = rota.ok("job", failed)
    assert "raise ValueError" not in short.out and "--verbose" in short.err
    shown = rota.ok("job", failed, "--verbose").out
    assert attempt["worker"] in shown and 'raise ValueError(f"no data for {day}")' in shown
    assert "no job 12345: it never existed" in rota("job", "12345").error[1]


@rule("M85")
def test_jobs_are_found_by_every_filter(rota: Here) -> None:
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
    assert found("--error", "NO DATA for", "--since", "1h") == [report]
    assert found("--since", "2001-01-01", "--until", "2001-01-02T10:00") == []
    lines = rota.ok("jobs").out.splitlines()
    assert [line.split()[1] for line in lines] == ["type", "report", "send_mail"]
    assert rota.ok("jobs", "--status", "dead").out == "no jobs found\n"
    assert "'ded' is not one of" in rota("jobs", "--status", "ded").error[1]
    [error] = rota.ok("errors", "--json").json["errors"]
    assert (error["job_type"], error["message"], error["attempts"]) == (
        "report",
        "no data for …",
        1,
    )
    assert "ValueError: no data for …" in rota.ok("errors", "--type", "report").out
    assert "'banana'" in rota("errors", "--since", "banana").error[1]
    assert f"next page: --before {report}" in rota.ok("jobs", "--limit", "1").err
    assert "next page" not in rota.ok("jobs", "--limit", "2").err
    assert "finished jobs: last 24 h; for more: --since 14d" in rota.ok("jobs").err
    assert rota.ok("jobs", "--since", "1d").err == ""


@rule("M85")
def test_the_overviews_show_the_current_state_and_count_no_further_than_they_must(
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type) select 'nobody_knows' from generate_series(1, 10001)"
    )
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at) "
        "values ('later', 'email', 5, now() + interval '1 day')"
    )
    stats = rota.ok("stats", "--json").json
    assert stats["jobs"] == {"queued": 10_000, "waiting": 0, "running": 0, "failed": 0, "dead": 0}
    assert stats["counted_to"] == 10_000 and stats["oldest_due_s"] >= 0
    shown = rota.ok("stats").out
    assert "≥ 10,000" in shown and "oldest due: waiting for " in shown
    default, email = rota.ok("queues", "--json").json["queues"]
    assert (default["queue"], default["due"], default["later"]) == ("default", 10_000, 0)
    assert (email["queue"], email["priority"], email["due"], email["later"]) == ("email", 5, 0, 1)
    assert "≥ 10,000" in rota.ok("queues").out
    connection.execute("truncate rota.job cascade")
    connection.execute(
        "insert into rota.stat_hour (hour, job_type, queue, succeeded, dead, ran, "
        "failed_by_release) values (date_trunc('hour', now()), 'mail', 'q', 2000, 7, "
        '\'{"38": 3}\', \'{"r1": 1, "r2": 1041}\')'
    )
    connection.execute("update rota.stat_rollup set complete_to = now()")
    shown = rota.ok("stats").out
    [line] = [line.split() for line in shown.splitlines() if "2,000" in line]
    assert line == ["mail", "2,000", "7", "932", "ms", "932", "ms"], "a column of zeros is left out"
    assert shown.splitlines()[-1] == "failed attempts: 1,041 by r2, 1 by r1"
    facts = rota.ok("stats", "--json").json
    assert facts["failed_by_release"] == facts["types"][0]["failed_by_release"]
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
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue) values (e'[red]loud[/red]\\x1b[2J', 'default')"
    )
    shown = rota.ok("jobs").out
    assert "\x1b" not in shown and "[red]loud[/red]\N{REPLACEMENT CHARACTER}[2J" in shown
