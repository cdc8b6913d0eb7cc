"""`rota.testing.Harness`: what a test asks of the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from unittest.mock import ANY

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.declare.secret import VARIABLE, make_key
from rota.testing import Harness
from tests.support.databases import Databases
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: str) -> rota.App:
    return rota.App(database, release="1")


@pytest.fixture
def harness(app: rota.App) -> Iterator[Harness]:
    with Harness(app) as harness:
        yield harness


def test_a_performed_job_has_its_result_and_is_recorded(app: rota.App, harness: Harness) -> None:
    threads = []

    @app.job("add")
    def add(a: int, b: int = 1) -> int:
        threads.append(threading.current_thread())
        return a + b

    done = harness.perform(add.new(2))
    assert (done.status, done.result, done.attempt, done.error) == ("succeeded", 3, 1, None)
    assert threads != [threading.main_thread()], "the real executor runs it"
    assert app.get(done.id).release == "1"


def test_a_failed_attempt_gives_the_exception_and_when_it_runs_again(
    app: rota.App, harness: Harness
) -> None:
    @app.job("fail", retry=rota.Fixed("1h"))
    def fail() -> None:
        raise ValueError("no")

    done = harness.perform(fail.new())
    assert (done.status, repr(done.error), done.attempt) == ("failed", "ValueError('no')", 1)
    assert (done.job.run_at - harness.freeze()).total_seconds() == pytest.approx(3600, abs=1000)
    assert harness.perform(done.id).attempt == 2, "whatever its run_at"


@rule("M72", "M50")
def test_a_drain_runs_the_members_of_batches_and_then_what_follows(
    app: rota.App, harness: Harness
) -> None:
    bound: list[tuple[int, int]] = []

    @app.job("page", max_attempts=1)
    def page(number: int) -> None:
        if number < 0:
            raise ValueError(number)

    @app.job("bind", takes_context=True)
    async def bind(ctx: rota.Context) -> None:
        bound.append((ctx.ended_batch.total, ctx.ended_batch.failed))

    def make(*numbers: int, parent: int | None = None) -> rota.records.NewBatch:
        return app.batch([page.new(number) for number in numbers], then=bind.new(), parent=parent)

    outer = make(1, -2, 3)
    make(4, 5, parent=outer.id)
    make()
    drained = harness.drain()
    assert (drained.succeeded, drained.dead) == (7, 1)
    assert sorted(bound) == [(0, 0), (2, 0), (4, 1)]
    first, second = make(6, 7).jobs
    harness.perform(first.id)
    harness.refute_enqueued(bind)
    app.cancel(second.id)
    assert harness.drain().succeeded == 1
    assert bound[-1] == (2, 1)


def test_an_outcome_is_the_error_of_the_attempt(app: rota.App, harness: Harness) -> None:
    outcomes = {
        "queued": rota.Snooze("1h", "later"),
        "dead": rota.Dead("for a person"),
        "cancelled": rota.Cancel("no more"),
        "failed": rota.Retry("once more"),
    }

    @app.job("end", history="failures")
    def end(status: str) -> int:
        if status in outcomes:
            raise outcomes[status]
        return 7

    for status, outcome in outcomes.items():
        done = harness.perform(end.new(status))
        assert (done.status, done.error) == (status, outcome)
    done = harness.perform(end.new("succeeded"))  # of which nothing is kept
    assert (done.status, done.result) == ("succeeded", 7)


@rule("M50")
def test_a_performed_job_has_the_meta_that_enqueues_carry(app: rota.App, harness: Harness) -> None:
    @app.enqueue_middleware
    @contextmanager
    def carry(_: object) -> Iterator[dict[str, str]]:
        yield {"tenant": "acme", "request": "r-1"}

    seen: list[object] = []

    @app.job("look", takes_context=True)
    def look(context: rota.Context) -> None:
        seen.append(context.job.meta)

    harness.perform(look.new().using(meta={"request": "mine"}))
    harness.run_twice(look.new())
    asyncio.run(harness.aperform(look.new()))
    plain = {"tenant": "acme", "request": "r-1"}
    assert seen == [plain | {"request": "mine"}, plain, plain, plain]


def test_a_job_that_cannot_be_claimed_is_refused_in_words(app: rota.App, harness: Harness) -> None:
    @app.job("once", unique=lambda: "k")
    def once() -> None: ...

    done = harness.perform(once.new())
    with pytest.raises(rota.WrongStatus, match="is succeeded, not queued or failed"):
        harness.perform(done.id)
    with pytest.raises(rota.UsageError, match=f"job {done.id} .* has the idempotency key"):
        harness.perform(once.new())
    with pytest.raises(rota.JobNotFound):
        harness.perform(99)
    app.queues.pause("slow", force=True)
    job = once.using(queue="slow", key="other").enqueue()
    with pytest.raises(rota.UsageError, match="is in queue 'slow', which is paused"):
        harness.perform(job.id)


def test_a_job_that_another_transaction_has_locked_is_not_claimed(
    app: rota.App, harness: Harness, database: str
) -> None:
    @app.job("once")
    def once() -> None: ...

    job = once.enqueue()
    with psycopg.connect(database) as other:
        other.execute("select from rota.job where id = %s for update", [job.id])
        with pytest.raises(rota.UsageError, match="is locked by another transaction"):
            harness.perform(job.id)
    assert harness.perform(job.id).status == "succeeded"


def test_an_enqueued_job_is_found_by_some_of_its_arguments(app: rota.App, harness: Harness) -> None:
    @app.job("mail", queue="mail")
    def mail(user_id: int, day: date, template: str = "welcome") -> None: ...

    made = mail.using(priority=5, delay="1h").enqueue(42, date(2026, 1, 14))
    for found in (
        harness.enqueued(mail),
        harness.enqueued("mail", user_id=42),
        harness.enqueued(mail, day=date(2026, 1, 14), template="welcome"),
        harness.enqueued("mail", day="2026-01-14"),
        harness.enqueued(mail.using(priority=5, queue="mail", delay="1h")),
    ):
        assert found.id == made.id
    harness.refute_enqueued(mail, user_id=43)
    harness.refute_enqueued(mail.using(delay="2h"))
    assert [job.id for job in harness.all_enqueued(mail)] == [made.id]
    with pytest.raises(rota.UsageError, match="takes day, template, user_id, not user"):
        harness.enqueued(mail, user=42)


def test_a_job_is_found_and_refuted_under_each_name_of_its_type(
    app: rota.App, harness: Harness, database: str
) -> None:
    @app.job("mail", aliases=("letter",))
    def mail(user_id: int) -> None: ...

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""select rota.enqueue('letter', '{"user_id": 1}')""")
    mail.enqueue(2)
    assert [harness.enqueued(name, user_id=1).job_type for name in (mail, "letter")] == [
        "letter"
    ] * 2
    assert harness.enqueued("letter", user_id=2).job_type == "mail"
    for name in (mail, "letter"):
        for user_id in (1, 2):
            with pytest.raises(AssertionError, match="a job of type 'mail' with user_id="):
                harness.refute_enqueued(name, user_id=user_id)


def test_a_refutation_that_would_always_hold_is_refused(app: rota.App, harness: Harness) -> None:
    @app.job("mail")
    def mail(user_id: int, tags: tuple[str, ...] = (), note: object = None) -> None: ...

    other = rota.App("postgresql://nobody@127.0.0.1:1/none")

    @other.job("foreign")
    def foreign() -> None: ...

    mail.enqueue(1, ("a", "b"), note=("x", "y"))
    with pytest.raises(rota.UsageError, match=r"no job type 'mial'.*not rota_test\.all_enqueued"):
        harness.refute_enqueued("mial")
    with pytest.raises(rota.UsageError, match="'foreign' is not one of the App that is tested"):
        harness.refute_enqueued(foreign)
    with pytest.raises(rota.UsageError, match="'user_id': expected int, got str"):
        harness.refute_enqueued(mail, user_id="1")
    with pytest.raises(AssertionError, match="is enqueued"):
        harness.refute_enqueued(mail, tags=["a", "b"])
    with pytest.raises(AssertionError, match="is enqueued"):
        harness.refute_enqueued(mail, note=("x", "y"))
    harness.enqueued(mail, user_id=ANY)
    assert harness.all_enqueued("of_another_service") == []


@rule("M45")
def test_a_message_has_no_secret_and_nothing_personal(
    app: rota.App, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_key("k1"))

    @app.job("pay")
    def pay(token: rota.Secret[str], from_: rota.Personal[str], n: int = 1) -> None: ...

    pay.enqueue(rota.Secret("S3CR-test"), "Perx test")
    with pytest.raises(AssertionError) as told:
        harness.enqueued(pay, token=rota.Secret("S3CR-other"), from_="Perx other", n=2)
    assert str(told.value) == (
        "no job of type 'pay' with token=***, from_=***, n=2 is enqueued; "
        "there is 1 job, nearest first:\n"
        "  job 1 pay(token=***, n=1, from_=***) is queued: token is another; from_ is another; "
        "n is 1, not 2"
    )


def test_a_block_is_asked_for_what_it_enqueues_itself(app: rota.App, harness: Harness) -> None:
    @app.job("mail")
    def mail(user_id: int) -> None: ...

    mail.enqueue(1)
    with harness.expect_enqueued(mail, user_id=2) as expected:
        mail.enqueue(2)
        harness.drain()
    assert expected.job.payload == {"user_id": 2}
    with (
        pytest.raises(AssertionError, match="enqueued no job of type 'mail' with user_id=1"),
        harness.expect_enqueued(mail, user_id=1),
    ):
        mail.enqueue(3)
    with pytest.raises(ZeroDivisionError), harness.expect_enqueued(mail):
        _ = 1 / 0


def test_a_drain_runs_what_its_jobs_enqueue_in_order(app: rota.App, harness: Harness) -> None:
    ran: list[str] = []

    @app.job("first", queue="any")
    def first() -> None:
        ran.append("first")
        second.using(priority=9).enqueue()

    @app.job("second")
    async def second() -> None:
        ran.append("second")

    @app.job("third")
    def third() -> None:
        ran.append("third")

    first.using(queue="undeclared").enqueue()
    third.enqueue()
    assert harness.drain().succeeded == 3
    assert ran == ["first", "second", "third"]
    assert harness.drain().performed == []


def test_a_drain_shows_the_errors_of_dead_and_failed_jobs_and_fails_of_no_known_type(
    app: rota.App, harness: Harness, connection: Connection
) -> None:
    @app.job("die", max_attempts=1)
    def die() -> None:
        raise ValueError("for ever")

    @app.job("fail")
    def fail() -> None:
        raise KeyError("today")

    die.enqueue()
    fail.enqueue()
    drained = harness.drain()
    assert (drained.dead, drained.failed, drained.succeeded) == (1, 1, 0)
    shown = repr(drained)
    assert 'raise ValueError("for ever")' in shown
    assert "job 2 fail is failed: KeyError: 'today'" in shown
    connection.execute("insert into rota.job (job_type) values ('nobody')")
    with pytest.raises(AssertionError, match="job 3 nobody: no such type here"):
        harness.drain()


async def test_everything_has_an_async_twin(app: rota.App, harness: Harness) -> None:
    @app.job("mail")
    async def mail(user_id: int) -> int:
        return user_id

    await mail.aenqueue(1)
    assert (await harness.aenqueued(mail)).id == 1
    assert len(await harness.aall_enqueued(mail)) == 1
    async with harness.expect_enqueued(mail, user_id=2):
        await mail.aenqueue(2)
    assert (await harness.aperform(mail.new(3))).result == 3
    assert (await harness.adrain()).succeeded == 2
    await harness.arefute_enqueued(mail)
    at = await harness.afreeze()
    assert await harness.aadvance("1h") == at + timedelta(hours=1)
    with pytest.raises(rota.UsageError, match="await aperform"):
        harness.perform(mail.new(5))


def test_a_harness_gives_the_app_its_database_back(app: rota.App, databases: Databases) -> None:
    before = app._database
    with databases.lend() as name:
        url = before.url.rpartition("/")[0] + f"/{name}"
        with Harness(app, url) as harness:
            harness.freeze(datetime(2026, 1, 14, tzinfo=UTC))
            assert app._database.url == url
        with psycopg.connect(url) as connection:
            [(drift,)] = connection.execute(
                "select rota.clock() - statement_timestamp()"
            ).fetchall()
    assert drift == timedelta()
    assert app._database is before
    assert datetime.now(UTC).year > 2025
    with pytest.raises(rota.UsageError, match="not both"):
        Harness(app, "postgresql:///x", connection=object())


def test_a_test_does_not_wait_for_rate_limits(app: rota.App, harness: Harness) -> None:
    @app.job("mail", rate_limit=rota.RateLimit("smtp", 1, per="1h"))
    def mail(number: int) -> None: ...

    for number in range(3):
        mail.enqueue(number)
    assert [job.status for job in harness.drain().performed] == ["succeeded"] * 3
