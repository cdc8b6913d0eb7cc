"""A job type that declares its key: the key that its jobs get, and the jobs that lack one."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import date
from typing import Any

import psycopg
import pytest

import rota
from tests.store.work import Connection
from tests.support.rules import rule

LACKS_KEY = "idempotency_key is missing: job type 'welcome' declares one, made of user_id, template"


@pytest.fixture
def welcome(app: rota.App) -> rota.JobType[..., ..., None]:
    @app.job(
        "welcome",
        unique=lambda user_id, template="": f"welcome:{user_id}:{template}",
        aliases=("greet",),
    )
    def welcome(user_id: int, template: str = "short", day: date | None = None) -> None: ...

    app.sync()
    return welcome


Welcome = rota.JobType[..., ..., None]


def _keys(connection: Connection) -> list[str | None]:
    return [
        key
        for (key,) in connection.execute(
            "select idempotency_key from rota.job order by id"
        ).fetchall()
    ]


@rule("M51")
def test_every_way_to_enqueue_makes_the_key_that_the_type_declares(
    app: rota.App, shared: Connection, welcome: Welcome
) -> None:
    welcome.enqueue(1)
    asyncio.run(_aenqueue(app, welcome, 2))
    welcome.enqueue_many([{"user_id": 3, "template": "long"}, {"user_id": 4}])
    app.enqueue_many([welcome.new(5), welcome.using(priority=1).new(6).using(delay="1h")])
    assert _keys(shared) == [
        "welcome:1:short",  # the handler's default, not that of the function
        "welcome:2:short",
        "welcome:3:long",
        "welcome:4:short",
        "welcome:5:short",
        "welcome:6:short",
    ]
    assert not welcome.enqueue(user_id=4, day=date(2026, 11, 23)).created


async def _aenqueue(app: rota.App, welcome: Welcome, user_id: int) -> None:
    await welcome.aenqueue(user_id)
    await app.aclose()


@rule("M51")
def test_a_key_that_the_call_gives_counts_instead_and_the_function_is_not_asked(
    app: rota.App, shared: Connection
) -> None:
    @app.job("t", unique=lambda n: 1 // n)
    def handler(n: int) -> None: ...

    handler.using(key="mine").enqueue(0)
    assert _keys(shared) == ["mine"]


@rule("M51")
def test_the_function_gets_the_arguments_as_the_handler_will_get_them(app: rota.App) -> None:
    @app.job("report", unique=lambda day: f"report:{day:%Y-%m}")
    def report(day: date) -> None: ...

    first = report.enqueue(date(2026, 11, 1))
    loose: Any = report
    assert loose.enqueue("2026-11-30") == rota.Enqueued(first.id, False, "queued")


@rule("M51")
def test_a_text_makes_the_key_of_the_arguments_that_it_names(
    app: rota.App, shared: Connection
) -> None:
    @app.job("report", unique="report:{day:%Y-%m}:{of}", ordered=rota.Ordered("{of}"))
    def report(day: date, of: str | None = "all") -> None: ...

    first = report.enqueue(date(2026, 11, 1))
    assert report.enqueue(date(2026, 11, 30)).id == first.id
    with pytest.raises(rota.UsageError, match=r"text 'report:.*: of is None; .* nothing was ins"):
        report.enqueue(date(2026, 11, 1), None)
    assert _keys(shared) == ["report:2026-11:all"]


@rule("M51")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("w:{userid}", "takes 'userid', which is no argument of the handler; it takes user_id"),
        ("w:{user_id.name}", r"has \{user_id.name\}"),
        ("w:{}", r"has \{\}"),
        ("w:{user_id", "cannot be read"),
    ],
)
def test_a_text_that_makes_no_key_is_refused_at_its_declaration(text: str, says: str) -> None:
    with pytest.raises(rota.errors.DeclarationError, match=f"the key text '.*' {says}"):

        @rota.Jobs().job("welcome", unique=text)
        def welcome(user_id: int) -> None: ...


async def _async_key(user_id: int) -> str:
    return f"{user_id}"


@rule("M51")
def test_a_function_that_rota_cannot_call_is_refused_at_its_declaration() -> None:
    keys: list[Any] = [
        lambda userid: f"{userid}",
        lambda *user_id: "k",
        lambda **given: "k",
        eval("lambda user_id, /: 'k'"),
        _async_key,
        dict,
    ]
    for key in keys:
        with pytest.raises(rota.errors.DeclarationError, match="'welcome': the key function at "):

            @rota.Jobs().job("welcome", unique=key)
            def welcome(user_id: int) -> None: ...


@rule("M51")
def test_a_function_that_makes_no_key_is_at_fault_and_nothing_is_inserted(
    app: rota.App, shared: Connection
) -> None:
    made: list[Any] = [None, "", 7, "k" * 256, "a\0b"]

    @app.job("welcome", unique=lambda user_id: made[user_id])
    def welcome(user_id: int) -> None: ...

    for at in range(len(made) + 1):
        with pytest.raises(rota.UsageError, match="job type 'welcome': its key function at"):
            welcome.enqueue(at)
        with pytest.raises(rota.UsageError):
            welcome.enqueue_many([{"user_id": at}])
    assert _keys(shared) == []


@rule("M15", "M51")
@pytest.mark.usefixtures("welcome")
@pytest.mark.parametrize(
    "insert",
    [
        "insert into rota.job (job_type, payload) values ('welcome', '{\"user_id\": 1}')",
        "insert into rota.job (job_type, queue, priority) values ('welcome', 'mail', 5)",
        "insert into rota.job (job_type) values ('greet')",
        "insert into rota.job (job_type) values ('other'), ('welcome')",
        "select rota.enqueue('welcome')",
    ],
)
def test_an_insert_without_a_key_that_its_type_declares_is_refused_in_words(
    shared: Connection, insert: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        shared.execute(insert)
    assert refused.value.diag.message_primary == f"rota.job: {LACKS_KEY}; nothing was written"
    assert refused.value.diag.constraint_name == "job_idempotency_key"
    assert _keys(shared) == []


@rule("M15", "M51")
def test_a_client_of_an_older_release_is_refused_in_the_same_words(
    database: str, connection: Connection, welcome: Welcome
) -> None:
    with closing(rota.App(database, release="older")) as older:

        @older.job("welcome")
        def handler(user_id: int) -> None: ...

        with pytest.raises(rota.UsageError, match=f"^{LACKS_KEY}; nothing was written$"):
            handler.enqueue(1)
        with pytest.raises(rota.UsageError, match=LACKS_KEY):
            older.enqueue_many([handler.using(key="k").new(1), handler.new(2)])
    assert _keys(connection) == []


@rule("M15", "M51")
def test_other_types_and_inserts_with_a_key_are_taken(
    shared: Connection, app: rota.App, welcome: Welcome
) -> None:
    shared.execute("insert into rota.job (job_type) values ('other')")
    shared.execute("insert into rota.job (job_type, idempotency_key) values ('welcome', 'k')")
    shared.execute("select rota.worker_declare('sql', key_arguments => '{}')")
    with pytest.raises(psycopg.errors.CheckViolation, match="type 'sql' declares one; nothing"):
        shared.execute("insert into rota.job (job_type) values ('sql')")


@rule("M51", "M81", "M87")
def test_runs_of_schedules_and_jobs_run_again_need_no_key(
    app: rota.App, shared: Connection, welcome: Welcome
) -> None:
    app.schedule("weekly", "0 8 * * 1", welcome.new(1))
    app.sync()
    run = app.schedules.trigger("weekly")
    dead = welcome.enqueue(2)
    app.jobs.discard(dead.id)
    again = app.retry(dead.id, again=True)
    app.jobs.archive(dead.id, why="done")
    other = welcome.enqueue(3)
    app.jobs.discard(other.id)
    requeued = app.retry(other.id)
    assert dict(shared.execute("select id, idempotency_key from rota.job").fetchall()) == {
        run: None,
        again.id: None,
        requeued.id: "welcome:3:short",
    }
    with pytest.raises(psycopg.errors.CheckViolation, match=LACKS_KEY):
        shared.execute("insert into rota.job (job_type) values ('welcome')")


@rule("M51")
def test_a_parameter_named_for_a_keyword_is_named_so_by_the_key_function_too(
    app: rota.App, shared: Connection
) -> None:
    @app.job("report", unique=lambda from_, class_: f"report:{from_}:{class_}")
    def report(from_: int, class_: str = "b") -> None: ...

    report.enqueue(from_=7)
    assert _keys(shared) == ["report:7:b"]
