"""What cannot be enqueued: a clear error, nothing inserted, the caller's transaction intact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import psycopg
import pytest

import rota
from tests.store.work import Connection
from tests.support.rules import rule

NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001


class User:
    """Stands for an object of an ORM: it has no JSON form."""

    id = 7


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

    @app.job("of_text")
    def of_text(text: str) -> None: ...

    return dict(app.types)


BAD: dict[str, tuple[str, Callable[[], Any], str | None, str]] = {
    "an object of an ORM, inside": ("of_anything", lambda: {"users": [User()]}, "value",
        "a User cannot be stored as JSON; pass its id"),
    "one byte too many": ("of_text", lambda: "x" * (65537 - len('{"text": ""}')), None,
        "65,537 bytes is over the limit of 65,536"),
    "a wrong type": ("of_an_id", lambda: "seven", "user", "expected int, got str"),
}  # fmt: skip


@rule("M12")
def test_a_bad_argument_is_named_with_its_reason(app: rota.App, callers: Connection) -> None:
    types = _types(app)
    for case, (name, value, argument, reason) in BAD.items():
        job_type = types[name].using(connection=callers)
        [name_of_it] = job_type._declaration.codec.names
        enqueues: list[tuple[Callable[[], Any], int | None]] = [
            (partial(job_type.enqueue, value()), None),
            (partial(job_type.enqueue_many, [{name_of_it: value()}]), 0),
        ]
        for enqueue, index in enqueues:
            with pytest.raises(rota.PayloadError) as refused:
                enqueue()
            assert reason in refused.value.reason, case
            assert (refused.value.job_type, refused.value.index) == (name, index), case
            assert argument is None or refused.value.argument == argument, case


NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRONG: list[dict[str, Any]] = [
    {"run_at": NAIVE}, {"run_at": "2026-01-01T00:00Z"}, {"run_at": NOW, "delay": "5s"},
    {"delay": "-5s"}, {"delay": timedelta(seconds=-1)}, {"delay": 5}, {"delay": "soon"},
    {"priority": 101}, {"priority": -101}, {"priority": "high"}, {"priority": True},
    {"queue": ""}, {"queue": "q" * 101}, {"queue": "a\nb"}, {"max_attempts": 0},
    {"timeout": "0s"}, {"timeout": 20}, {"expires": "-1h"},
    {"key": ""}, {"key": "k" * 256}, {"key": "a\0b"}, {"key": 12},
    {"meta": [1]}, {"meta": {"user": User()}}, {"meta": {"at": [math.nan]}}, {"meta": {"a": "\0"}},
    {"runat": NOW},
]  # fmt: skip


@rule("M21")
def test_an_option_out_of_range_is_refused_where_it_is_given() -> None:
    job_type = _types(rota.App("postgresql://nowhere/"))["of_an_id"]
    for options in WRONG:
        for given in (job_type, job_type.new(1)):
            with pytest.raises(rota.UsageError) as refused:
                given.using(**options)
            assert next(iter(options)) in str(refused.value)


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
