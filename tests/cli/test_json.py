"""`--json` is of one kind, whatever the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from psycopg.rows import TupleRow

from rota.cli import make_cli, run
from rota.cli.output import json_line
from tests.store.work import FAIL, GIVE_UP, SUCCEED, Hand, insert
from tests.support.project import enter
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

READING = (
    ["migrate", "--check"], ["sync"], ["crontab"], ["jobs"], ["errors"], ["schedules"],
    ["stats", "--type", "t"], ["queues"], ["workers"], ["types"], ["doctor"], ["metrics"], ["top"],
    ["alerts"], ["check"], ["effects"], ["groups"], ["limits"], ["batches"], ["breakers"],
    ["secrets"],
)  # fmt: skip
"""What a program may ask of an empty database too."""
MAIL = ["send_mail", "--payload", '{"user_id": 1}']
ABOUT = (
    ["job", "3"], ["batches", "show", "1"], ["batches", "cancel", "1"],
    ["schedules", "show", "daily"],
    ["schedules", "put", "weekly", *MAIL, "--cron", "0 8 * * 1", "--timezone", "Asia/Kolkata"],
    ["schedules", "pause", "weekly"], ["schedules", "resume", "weekly"],
    ["schedules", "trigger", "weekly"], ["schedules", "delete", "weekly"],
    ["enqueue", *MAIL, "--delay", "1h"], ["retry", "2"], ["reschedule", "2", "--priority", "1"],
    ["cancel", "2"], ["discard", "4"], ["retry", "3"], ["archive", "4", "--why", "solved"],
    ["erase", "--job", "4", "--why", "asked", "--yes"], ["retry", "--again", "1"],
    ["effects", "resolve", "mail:1", "--not-done"], ["queues", "pause", "email", "--for", "1h"],
    ["queues", "resume", "email"], ["queues", "set", "email", "--max-running", "2"],
    ["breakers", "trip", "smtp", "--for", "1h"], ["breakers", "reset", "smtp"],
    ["limits", "set", "smtp", "50"], ["work", "--drain"],
)  # fmt: skip
ELSEWHERE = {"demo", "web", "run", "db url", "db psql", "db stop", "db reset", "secrets new-key"}
ELSEWHERE |= {"secrets rotate", "docs", "import-table", "mcp"}
"""They print no instant and no duration of their own, or are tested with what they start."""
INSTANTS = re.compile(
    r"(at|.*_at|since|until|.*_until|scheduled_for|hour|complete_to|oldest_due|next|enqueued_at)"
)
DURATIONS = (
    "timeout", "lease", "expires", "key_ttl", "jitter", "period", "repeat_after", "duration",
    "ran", "waited", "took",
)  # fmt: skip
LIKE_AN_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


@pytest.fixture
def here(shop: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    (shop / "shop.py").write_text(
        (shop / "shop.py").read_text()
        + 'app.schedule("daily", "0 2 * * *", send_mail.new(1), timezone="Asia/Kolkata")\n'
    )


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from leaves(inner, key)
        case list():
            for inner in value:
                yield from leaves(inner, name)
        case _:
            yield name, value


@pytest.mark.nightly
@pytest.mark.usefixtures("here")
@rule("M85")
def test_every_command_writes_instants_durations_and_absent_values_in_the_same_way(
    database: str, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    def check_answer(arguments: list[str]) -> dict[str, Any]:
        run([*arguments, "--json"])
        captured = capsys.readouterr()
        assert captured.out.count("\n") == 1, (arguments, captured)
        answer: dict[str, Any] = json.loads(captured.out)
        for name, value in leaves(answer):
            assert name not in DURATIONS, (arguments, name, value)
            if name.endswith("_s"):
                assert value is None or isinstance(value, int | float), (arguments, name, value)
            if INSTANTS.fullmatch(name) or (
                isinstance(value, str) and LIKE_AN_INSTANT.match(value)
            ):
                assert value is None or (
                    value.endswith("Z") and datetime.fromisoformat(value).tzinfo is UTC
                ), (arguments, name, value)
        return answer

    empty = {arguments[0]: check_answer(arguments) for arguments in READING}
    fill(connection)
    full = {arguments[0]: check_answer(arguments) for arguments in READING}

    assert {name: answer.keys() for name, answer in full.items()} == {
        name: answer.keys() for name, answer in empty.items()
    }
    assert full["sync"]["schedules"] == ["daily"]
    queue, waiting = full["stats"], full["queues"]["queues"][0]
    assert (
        queue["oldest_due"]
        == waiting["oldest_due"]
        == full["top"]["queues"][0]["oldest_due"]
        is not None
    )
    assert (
        min(
            queue["oldest_due_s"], waiting["oldest_due_s"], full["top"]["queues"][0]["oldest_due_s"]
        )
        > 0
    )
    [effect] = full["effects"]["effects"]
    assert effect["intended_at"] is not None and effect["done_at"] is None
    later = full["queues"]["queues"][-1]
    assert (later["queue"], later["oldest_due"], later["oldest_due_s"]) == ("later", None, None)

    connection.execute("insert into rota.batch (total, on_failure) values (1, 'continue')")
    connection.execute("insert into rota.job_type (name, breaker) values ('mail', 'smtp')")
    connection.execute(
        "insert into rota.rate_limit (name, starts, per, burst) values ('smtp', 100, '1 min', 10)"
    )
    answers = {" ".join(arguments[:2]): check_answer(arguments) for arguments in ABOUT}

    assert "now" not in answers["schedules show"]["schedule"]
    assert answers["work --drain"].keys() == {
        "claimed",
        "succeeded",
        "failed",
        "dead",
        "oldest_due",
        "paused",
    }
    named = (
        {arguments[0] for arguments in (*READING, *ABOUT)}
        | {" ".join(arguments[:2]) for arguments in ABOUT}
        | ELSEWHERE
    )
    assert set(commands(typer.main.get_command(make_cli()))) <= named


NASTY = "é 🎉 \x7f\x85\x9b31m\u061c\u200e\u2028\u2029\u202e\u2066\ufeff\U000e0041\U0001f469\u200d"
"""Printed as they are, DEL, C1 controls and bidi controls act on a terminal."""


@pytest.mark.usefixtures("here")
@rule("M45", "M85")
def test_nothing_that_acts_on_a_terminal_is_printed_as_it_is(
    connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload, meta) "
        "values (%s, jsonb_build_object('a', %s::text), jsonb_build_object(%s::text, 1))",
        [f"t{NASTY}", NASTY, NASTY],
    )
    [(id_,)] = connection.execute("select max(id) from rota.job").fetchall()
    for arguments in (["jobs"], ["job", str(id_)], ["types"], ["doctor"], ["top"], ["queues"]):
        run([*arguments, "--json"])
        out = capsys.readouterr().out
        assert out.removesuffix("\n").isprintable(), arguments
        if arguments[0] in ("jobs", "job"):
            assert NASTY in list(texts(json.loads(out)))
    run(["schedules", "show", NASTY, "--json"])
    assert capsys.readouterr().err.removesuffix("\n").isprintable()
    escaped = r"\u007f\u0085\u009b31m\u061c\u200e\u2028\u2029\u202e\u2066\ufeff\udb40\udc41👩\u200d"
    assert json_line(NASTY) == f'"é 🎉 {escaped}"'


def texts(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case str():
            yield value


def fill(connection: Connection) -> None:
    """One of each thing that can be told of."""
    hand = Hand(connection)
    hand.send_heartbeat(slots=10, queues='{"default": null}')
    insert(connection, 3)
    done, failed, given_up = hand.claim().jobs
    hand.settle((done, SUCCEED), (failed, FAIL), (given_up, GIVE_UP))
    connection.execute(
        "insert into rota.job (job_type, queue, priority, expires_at, meta) "
        "values ('t', 'default', 0, now() + interval '1 hour', '{}')"
    )
    [running] = hand.claim().jobs
    connection.execute(
        "select rota.job_progress(%s, %s, %s)",
        ([running.id], [running.claims], ['{"done": 1, "total": 2, "note": null}']),
    )
    connection.execute(
        "insert into rota.job (job_type, queue, priority) values ('t', 'default', 0)"
    )
    connection.execute(
        "insert into rota.job (job_type, queue, run_at) "
        "values ('t', 'later', now() + interval '1 day')"
    )
    connection.execute(
        "insert into rota.schedule (name, job_type, cron, jitter, expires) "
        "values ('nightly', 't', '0 2 * * *', '5 min', '1 hour')"
    )
    connection.execute(
        "insert into rota.effect (key, job, claim, entry, if_uncertain) "
        "values ('mail:1', 999, 1, 1, 'dead')"
    )
    connection.execute("insert into rota.queue (name) values ('slow')")
    connection.execute("select rota.queue_pause('slow', now() + interval '1 hour')")
    connection.execute("select rota.stats_roll_up()")
    connection.execute(
        "insert into rota.stat_hour (hour, job_type, queue, succeeded, ran) "
        "values (date_trunc('hour', now()), 't', 'q', 1, '{\"3\": 1}')"
    )
    connection.execute(
        "insert into rota.alert (rule, subject, state, severity, since, last_notified_at, "
        "notifications, value, message) "
        "values ('dead jobs', '', 'fires', 'warning', now(), now(), 1, 1, 'm')"
    )


def commands(group: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from (f"{name} {below}" for below in commands(command))
        else:
            yield name
