"""One number for each limit: what Python refuses is what the tables refuse."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta

import psycopg
import pytest

import rota
from rota.model import bounds, cron
from rota.model.units import LONGEST_S, seconds
from tests.store.work import Connection
from tests.support.rules import rule

LENGTHS = {
    "job_type": bounds.NAME_MAX, "notify_job": bounds.NAME_MAX, "queue": bounds.QUEUE_MAX,
    "idempotency_key": bounds.KEY_MAX, "key": bounds.KEY_MAX,
    "cron": cron.TEXT_MAX, "timezone": 100, "job_type.name": bounds.NAME_MAX,
    "schedule.name": bounds.NAME_MAX, "alert_rule.name": 100,
    "breaker.name": bounds.NAME_MAX, "rate_limit.name": 100, "group_key": bounds.KEY_MAX,
    "paused_by": bounds.NAME_MAX, "paused_why": bounds.WHY_MAX, "last_error": bounds.WHY_MAX,
    "release": bounds.NAME_MAX,
}  # fmt: skip
"""Most characters, by column.

A new CHECK of a length gets an entry here: the number in Python that it equals.
"""
NUMBERS = {
    "priority": (-bounds.PRIORITY_MAX, bounds.PRIORITY_MAX),
    "max_attempts": (1, bounds.ATTEMPTS_MAX),
}


@rule("M12", "M15")
def test_a_limit_is_one_number_in_the_tables_and_in_python(connection: Connection) -> None:
    checks = connection.execute(
        "select relname, pg_get_constraintdef(n.oid) from pg_constraint n join pg_class c on c.oid "
        "= n.conrelid"
        " where contype = 'c' and connamespace = 'rota'::regnamespace"
    ).fetchall()
    lengths, numbers = set(), set()
    [[refusal]] = connection.execute("select pg_get_functiondef('rota.job_refusal'::regproc)")
    for length, column, least, most in re.findall(
        r"WHEN \(+(length)?\(*p_job\)\.(\w+)\)* < '?(-?\d+)'?.*? > (\d+)\)", refusal
    ):
        if length:
            assert (least, int(most)) == ("1", LENGTHS[column])
            lengths.add(column)
        elif column in NUMBERS:
            assert (int(least), int(most)) == NUMBERS[column]
            numbers.add(("job", column))
    for table, text in checks:
        for column, least, most in re.findall(
            r"length\((\w+)\) >= (\d+)\) AND \(length\(\1\) <= (\d+)\)", text
        ):
            key = f"{table}.{column}" if column == "name" else column
            assert (least, int(most)) == ("1", LENGTHS[key]), (table, text)
            lengths.add(key)
        for column, most in re.findall(r"\(\(length\((\w+)\) <= (\d+)\)\)", text):
            assert int(most) == LENGTHS[column], (table, text)
            lengths.add(column)
        for column, least, most in re.findall(
            r"\((priority|max_attempts) >= '?\(?(-?\d+)\)?'?[:\w]*\)(?: AND \(\1 <= '?(\d+))?", text
        ):
            assert (int(least), int(most or 0)) == NUMBERS[column], (table, text)
            numbers.add((table, column))
    assert lengths == set(LENGTHS)
    assert numbers == {(table, column) for table in ("job", "schedule") for column in NUMBERS}
    bodies = connection.execute(
        "select prosrc from pg_proc where pronamespace = 'rota'::regnamespace"
    ).fetchall()
    cut = re.findall(
        r"one_line\((?:p_|\w+\.)?(by|why), (\d+)\)", " ".join(body for (body,) in bodies)
    )
    assert set(cut) == {("by", str(bounds.NAME_MAX)), ("why", str(bounds.WHY_MAX))}


@rule("M12", "M15")
def test_a_schedule_takes_every_expiry_that_python_takes(
    app: rota.App, connection: Connection
) -> None:
    job_type = app.job("t")(lambda: None)
    for expires_s in (0.001, LONGEST_S):
        expires = timedelta(seconds=expires_s)
        assert app.schedules.put("s", None, job_type.using(expires=expires).new()).name == "s"
    for expires_s in (0.0009, LONGEST_S + 1):
        expires = timedelta(seconds=expires_s)
        with pytest.raises(rota.UsageError):
            job_type.using(expires=expires)
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(
                "insert into rota.schedule (name, job_type, expires) values ('s2', 't', %s)",
                [expires],
            )


def test_a_job_without_a_type_has_the_lease_that_an_app_gives(connection: Connection) -> None:
    row = connection.execute("select rota.lease_default()").fetchone()
    given = inspect.signature(rota.App).parameters["lease"].default
    assert row == (timedelta(seconds=seconds(given, name="lease")),)


def test_a_release_has_a_length_that_can_be_asked_for() -> None:
    assert rota.App(release="r" * bounds.NAME_MAX).release
    with pytest.raises(rota.UsageError, match="release must be 1 to 200"):
        rota.App(release="r" * (bounds.NAME_MAX + 1))
