"""What the commands show."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

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


def test_what_a_producer_wrote_cannot_steer_the_terminal(
    rota: Here, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue) values (e'[red]loud[/red]\\x1b[2J', 'default')"
    )
    shown = rota.ok("jobs").out
    assert "\x1b" not in shown and "[red]loud[/red]\N{REPLACEMENT CHARACTER}[2J" in shown
