"""What cannot be enqueued: a clear error, nothing inserted, the caller's transaction intact."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001


class User:
    """Stands for an object of an ORM: it has no JSON form."""

    id = 7


@dataclass
class Between:
    start: datetime
    end: datetime


@pytest.fixture
def callers(database: str) -> Iterator[Connection]:
    """A connection in whose transaction something of the caller's is at stake."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "create table public.mine (saved text); insert into public.mine values ('work')"
        )
        yield connection
        assert connection.execute("select saved from public.mine").fetchall() == [("work",)]
        assert connection.execute("select count(*) from rota.job").fetchone() == (0,)
        connection.commit()


def _types(app: rota.App) -> dict[str, Any]:
    @app.job("of_an_id")
    def of_an_id(user: int) -> None: ...

    @app.job("of_anything")
    def of_anything(value: Any) -> None: ...

    @app.job("of_a_time")
    def of_a_time(at: datetime) -> None: ...

    @app.job("of_a_span")
    def of_a_span(between: Between) -> None: ...

    @app.job("of_an_amount")
    def of_an_amount(amount: Decimal) -> None: ...

    @app.job("of_text")
    def of_text(text: str) -> None: ...

    return dict(app.types)


def _deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


BAD: dict[str, tuple[str, Callable[[], Any], str | None, str]] = {
    "an object of an ORM": ("of_an_id", User, "user",
        "a User cannot be stored as JSON; pass its id"),
    "an object of an ORM, inside": ("of_anything", lambda: {"users": [User()]}, "value",
        "a User cannot be stored as JSON; pass its id"),
    "10 MB": ("of_text", lambda: "x" * 10_000_000, None,
        "10,000,012 bytes is over the limit of 65,536"),
    "one byte too many": ("of_text", lambda: "x" * (65537 - len('{"text": ""}')), None,
        "65,537 bytes is over the limit of 65,536"),
    "a NUL character": ("of_text", lambda: "a\0b", "text", "NUL"),
    "a NUL character in a key": ("of_anything", lambda: {"a": [{"b\0": 1}]}, "value", "NUL"),
    "a lone surrogate": ("of_text", lambda: "\ud800", "text", "surrogate"),
    "NaN": ("of_anything", lambda: math.nan, "value", "nan cannot be stored"),
    "infinity, inside": ("of_anything", lambda: {"a": [1.5, -math.inf]}, "value.a[1]",
        "-inf cannot be stored"),
    "a decimal NaN": ("of_an_amount", lambda: Decimal("NaN"), "amount", "NaN cannot be stored"),
    "a time without a zone": ("of_a_time", lambda: NAIVE, "at", "without a time zone"),
    "a time without a zone, inside": (
        "of_a_span", lambda: Between(datetime(2026, 1, 1, tzinfo=UTC), NAIVE),
        "between.end", "without a time zone"
    ),
    "a wrong type": ("of_an_id", lambda: "seven", "user", "expected int, got str"),
    "nested too deeply": ("of_anything", _deep, None, "nested too deeply"),
    "bytes of a set of objects": ("of_anything", lambda: {object()}, "value",
        "a object cannot be stored"),
}  # fmt: skip


@rule("M12")
@pytest.mark.parametrize(("name", "value", "argument", "reason"), BAD.values(), ids=BAD)
def test_a_bad_argument_is_named_with_its_reason(
    app: rota.App,
    callers: Connection,
    name: str,
    value: Callable[[], Any],
    argument: str | None,
    reason: str,
) -> None:
    job_type = _types(app)[name].using(connection=callers)
    [name_of_it] = job_type._declaration.codec.names
    enqueues: list[tuple[Callable[[], Any], int | None]] = [
        (lambda: job_type.enqueue(value()), None),
        (lambda: job_type.enqueue_many([{name_of_it: value()}]), 0),
    ]
    for enqueue, index in enqueues:
        with pytest.raises(rota.PayloadError) as refused:
            enqueue()
        assert reason in refused.value.reason
        assert (refused.value.job_type, refused.value.index) == (name, index)
        assert argument is None or refused.value.argument == argument


@rule("M12")
@pytest.mark.parametrize(
    ("arguments", "named", "argument", "reason"),
    [
        ((), {}, "user", "missing"),
        ((1, 2), {}, None, "at most 1 positional argument, not 2"),
        ((1,), {"user": 1}, "user", "given twice"),
        ((), {"usr": 1}, "usr", "did you mean 'user'?"),
        ((None,), {}, "user", "expected int, got null"),
        ((1.5,), {}, "user", "expected int"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(
    app: rota.App,
    callers: Connection,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    argument: str | None,
    reason: str,
) -> None:
    job_type = _types(app)["of_an_id"].using(connection=callers)
    with pytest.raises(rota.PayloadError) as refused:
        job_type.enqueue(*arguments, **named)
    assert refused.value.argument == argument and reason in refused.value.reason


@rule("M12")
def test_a_payload_that_json_makes_longer_is_measured_as_postgresql_stores_it(
    app: rota.App, callers: Connection
) -> None:
    of_anything = _types(app)["of_anything"].using(connection=callers)
    fits = {"value": [0] * 21_800}
    assert (
        len(json.dumps(fits, separators=(",", ":")))
        < 65_536
        < len(json.dumps({"value": [0] * 21_900}))
    )
    with pytest.raises(rota.PayloadError, match="over the limit"):
        of_anything.enqueue([0] * 21_900)
    assert of_anything.enqueue(fits["value"]).created
    callers.execute("delete from rota.job")


NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"run_at": NAIVE}, "run_at must be a datetime with a time zone"),
    ({"run_at": "2026-01-01T00:00Z"}, "run_at must be a datetime with a time zone"),
    ({"delay": "-5s"}, "delay"),
    ({"delay": timedelta(seconds=-1)}, "delay"),
    ({"delay": 5}, "delay"),
    ({"delay": "soon"}, "delay"),
    ({"run_at": NOW, "delay": "5s"}, "give run_at or delay, not both"),
    ({"priority": 101}, "priority must be a whole number from -100 to 100, not 101"),
    ({"priority": -101}, "priority must be a whole number from -100 to 100, not -101"),
    ({"priority": "high"}, "priority must be a whole number"),
    ({"priority": True}, "priority must be a whole number"),
    ({"priority": 1.0}, "priority must be a whole number"),
    ({"queue": ""}, "queue must be 1 to 100"),
    ({"queue": "q" * 101}, "queue must be 1 to 100"),
    ({"queue": "a\nb"}, "queue must be 1 to 100 printable"),
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
    ({"timeout": "0s"}, "timeout must be at least 1 ms, not '0s'"),
    ({"timeout": 20}, "timeout must be a timedelta or a string"),
    ({"expires": "-1h"}, "expires"),
    ({"key": ""}, "key must be 1 to 255"),
    ({"key": "k" * 256}, "key must be 1 to 255"),
    ({"key": "a\0b"}, "key must be 1 to 255"),
    ({"key": 12}, "key must be 1 to 255"),
    ({"meta": [1]}, "meta must be a mapping"),
    ({"meta": {"user": User()}}, "meta: a User cannot be stored"),
    ({"meta": {"at": [math.nan]}}, "meta.at[0]: nan cannot be stored"),
    ({"meta": {"at": "a\0b"}}, "meta: text with a NUL character cannot be stored"),
    (
        {"runat": NOW},
        "a job has no option 'runat' (did you mean run_at?); its options are run_at, delay",
    ),
]


@rule("M21")
@pytest.mark.parametrize(
    ("options", "reason"), WRONG, ids=[str(options)[:60] for options, _ in WRONG]
)
def test_an_option_out_of_range_is_refused_where_it_is_given(
    app: rota.App, options: dict[str, Any], reason: str
) -> None:
    job_type = _types(app)["of_an_id"]
    for given in (job_type, job_type.new(1)):
        with pytest.raises(rota.UsageError) as refused:
            given.using(**options)
        assert reason in str(refused.value)


@rule("M21")
def test_options_add_up_and_the_last_of_each_counts(app: rota.App) -> None:
    job_type = _types(app)["of_an_id"]
    done = (
        job_type.using(priority=1, queue="a", delay="1h")
        .using(priority=2, run_at=None)
        .using(key="k")
        .enqueue(1)
    )
    job = app.get(done.id)
    assert (job.priority, job.queue, job.idempotency_key) == (2, "a", "k")
    assert 3590 < (job.run_at - job.created_at).total_seconds() < 3610
    moved = app.get(
        job_type.using(delay="1h").using(run_at=datetime(2100, 1, 1, tzinfo=UTC)).enqueue(1).id
    )
    assert moved.run_at == datetime(2100, 1, 1, tzinfo=UTC)
    assert app.get(job_type.enqueue(1).id).queue == "default"  # the job type is unchanged


@rule("M21", "M22")
def test_run_at_in_the_past_means_now_and_a_zone_is_kept_to_the_instant(app: rota.App) -> None:
    job_type = _types(app)["of_an_id"]
    past = app.get(
        job_type.using(run_at=datetime(2001, 1, 1, tzinfo=UTC), expires="1h").enqueue(1).id
    )
    assert past.run_at == past.created_at
    assert past.expires_at == past.run_at + timedelta(hours=1)
    for offset in (-5, 0, 14):
        at = datetime(2100, 6, 1, 12, tzinfo=UTC).astimezone(timezone(timedelta(hours=offset)))
        assert app.get(job_type.using(run_at=at).enqueue(1).id).run_at == at


def test_jobs_of_no_app_say_what_they_lack() -> None:
    jobs = rota.Jobs()

    @jobs.job("t")
    def handler() -> None: ...

    with pytest.raises(rota.UsageError, match=r"belong to no App yet: create rota\.App"):
        handler.enqueue()
