"""Effects and steps in real workers: what an attempt finds of those before it."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.declare.secret import VARIABLE, make_key
from rota.observe.events import JobSnoozed, LeaseLost
from tests.pure.test_settle_lost import job as make_job
from tests.support.rules import rule
from tests.support.web import serving
from tests.worker import heavy
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, value

AT_ONCE = rota.Fixed("1s", jitter=0)
Context = rota.Context
Policy = rota.records.IfUncertain


async def work(
    database: str, connection: Connection, handler: Callable[..., Any], **options: Any
) -> Hand:
    """Work until no job of this handler is left but dead ones; retries are due at once."""
    jobs = rota.Jobs()
    jobs.job("sends", takes_context=True, **{"retry": AT_ONCE, **options})(handler)
    return await work_on(database, connection, jobs)


async def work_on(database: str, connection: Connection, jobs: rota.Jobs) -> Hand:
    while True:
        hand = Hand(database, jobs, drain=True)
        await hand.run()
        if not value(connection, "select count(*) from rota.job where status <> 'dead'"):
            return hand
        connection.execute(
            "update rota.job set run_at = now() where status in ('failed', 'queued')"
        )


def seen(connection: Connection) -> list[tuple[Any, ...]]:
    """The effects: key, status, result, uncertain before."""
    return rows(
        connection, "select key, status, result, uncertain_before from rota.effects order by key"
    )


def ends(connection: Connection) -> list[tuple[Any, ...]]:
    """How each job ended."""
    return rows(connection, "select status, attempts, error_type from rota.jobs order by id")


def post(url: str, timeout: float = 10) -> str:
    try:
        with urllib.request.urlopen(url, data=b"hello", timeout=timeout) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        raise


# What a later attempt finds


@rule("M52")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_later_attempt_finds_what_an_effect_kept(
    database: str, connection: Connection, is_async: bool
) -> None:
    found: list[Any] = []

    async def asends(ctx: Context) -> None:
        async with ctx.effect("mail:7") as effect:
            found.append((effect.key, effect.done, effect.uncertain, effect.result))
            if not effect.done:
                effect.result = {"id": "m-1"}
        if ctx.job.attempts == 1:
            raise ValueError("later")

    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            found.append((effect.key, effect.done, effect.uncertain, effect.result))
            if not effect.done:
                effect.result = {"id": "m-1"}
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, asends if is_async else sends)
    assert found == [("mail:7", False, False, None), ("mail:7", True, False, {"id": "m-1"})]
    assert seen(connection) == [("mail:7", "done", {"id": "m-1"}, 0)]


@dataclass
class Receipt:
    """What a provider says."""

    number: int
    parts: tuple[str, ...]


@rule("M52")
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_effect_that_is_called_is_done_once_and_returns_the_same_each_time(
    database: str, connection: Connection, is_async: bool
) -> None:
    sent: list[int] = []
    got: list[Any] = []

    def send(number: int, *, parts: tuple[str, ...]) -> Receipt:
        sent.append(number)
        return Receipt(number, parts)

    async def asend(number: int, *, parts: tuple[str, ...]) -> Receipt:
        return send(number, parts=parts)

    async def asends(ctx: Context) -> None:
        got.append(await ctx.effect("mail:7").call(asend, 7, parts=("a", "b")))
        if ctx.job.attempts == 1:
            raise ValueError("later")

    def sends(ctx: Context) -> None:
        got.append(ctx.effect("mail:7").call(send, 7, parts=("a", "b")))
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, asends if is_async else sends)
    assert (sent, got) == ([7], [Receipt(7, ("a", "b"))] * 2)
    assert seen(connection) == [("mail:7", "done", {"number": 7, "parts": ["a", "b"]}, 0)]


@rule("M52")
async def test_an_effect_whose_result_does_not_fit_is_done_all_the_same(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[int] = []
    got: list[Any] = []

    def send() -> Any:
        sent.append(1)
        return object()

    def promise() -> int:
        sent.append(2)
        return "no number"  # type: ignore[return-value]

    def sends(ctx: Context) -> None:
        got.append([ctx.effect("a").call(send), ctx.effect("b").call(promise)])
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends)
    assert (sent, got) == ([1, 2], [[None, "no number"]] * 2)
    assert seen(connection) == [("a", "done", None, 0), ("b", "done", "no number", 0)]
    assert "the result of effect 'a' of job 1 is not kept" in caplog.text


@rule("M52")
@pytest.mark.parametrize("policy", ["dead", "skip", "repeat"])
async def test_an_effect_that_is_called_is_uncertain_by_its_policy(
    database: str, connection: Connection, policy: Policy
) -> None:
    sent: list[int] = []
    got: list[Any] = []

    def send() -> int:
        sent.append(len(sent))
        if sent == [0]:
            raise ConnectionResetError
        return 7

    def sends(ctx: Context) -> None:
        got.append(ctx.effect("mail:7", if_uncertain=policy).call(send))

    put(connection, "sends")
    await work(database, connection, sends)
    wanted: dict[Policy, Any] = {"dead": (1, []), "skip": (1, [None]), "repeat": (2, [7])}
    assert (len(sent), got) == wanted[policy]


OUTCOMES: dict[Policy, tuple[int, str, str]] = {
    "dead": (1, "dead", "uncertain"),
    "skip": (1, "succeeded", "uncertain"),
    "repeat": (2, "succeeded", "done"),
}
"""Of a provider that takes the message and never answers: messages, the job, the effect."""


@pytest.mark.waits
@rule("M52")
@pytest.mark.parametrize("policy", OUTCOMES)
@pytest.mark.parametrize("how", ["timeout of the call", "timeout of the attempt"])
async def test_a_provider_that_takes_the_message_and_never_answers(
    database: str, connection: Connection, policy: Policy, how: str
) -> None:
    with serving() as provider:
        provider.status = None

        async def sends(ctx: Context) -> None:
            async with ctx.effect("mail:7", if_uncertain=policy) as effect:
                if effect.done:
                    assert (effect.uncertain, effect.result) == (True, None)
                    return
                assert effect.uncertain == (ctx.job.attempts > 1)
                call_s = 0.2 if how == "timeout of the call" else 60
                sending = asyncio.to_thread(post, provider.url, call_s)
                try:
                    await sending
                finally:
                    provider.status = 200

        timeout = "1s" if how == "timeout of the attempt" else "1m"
        put(connection, "sends")
        await work(database, connection, sends, timeout=timeout)
        provider.over.set()
        sent, status, effect = OUTCOMES[policy]
        assert len(provider.asked) == sent
    [(ended, attempts, _)] = ends(connection)
    assert (ended, attempts) == (status, 2)
    [(_, became, _, before)] = seen(connection)
    assert (became, before) == (effect, 1 if policy == "repeat" else 0)


@rule("M52")
@pytest.mark.parametrize("code", [404, 429, 503])
async def test_an_answer_that_is_a_refusal_is_an_ordinary_failure(
    database: str, connection: Connection, code: int
) -> None:
    with serving() as provider:
        provider.status = code

        def sends(ctx: Context) -> None:
            with ctx.effect("mail:7") as effect:
                if ctx.job.attempts == 2:
                    provider.status = 200
                assert not effect.done and not effect.uncertain
                effect.result = post(provider.url)

        put(connection, "sends")
        await work(database, connection, sends, retry_on=(404,))
        assert len(provider.asked) == 2
    assert seen(connection) == [("mail:7", "done", "200", 0)]
    assert ends(connection) == [("succeeded", 2, "urllib.error.HTTPError")]


@rule("M52")
async def test_a_refusal_does_not_prove_that_an_earlier_try_did_nothing(
    database: str, connection: Connection
) -> None:
    """The first try may have happened; the second one is refused; so it may have happened."""

    def sends(ctx: Context) -> None:
        policy: Policy = "repeat" if ctx.job.attempts < 3 else "dead"
        with ctx.effect("mail:7", if_uncertain=policy):
            if ctx.job.attempts == 1:
                raise TimeoutError("no answer")
            raise ConnectionRefusedError

    put(connection, "sends")
    await work(database, connection, sends)
    assert seen(connection) == [("mail:7", "uncertain", None, 1)]
    assert ends(connection) == [("dead", 3, "Dead")]


@rule("M52")
async def test_a_refused_call_does_not_prove_that_the_one_beside_it_did_nothing(
    database: str, connection: Connection
) -> None:
    sent: list[int] = []

    async def send(is_sent: asyncio.Event) -> None:
        sent.append(1)
        is_sent.set()
        await asyncio.Event().wait()  # for the answer: it is cancelled here

    async def sends(ctx: Context) -> None:
        is_sent = asyncio.Event()
        async with ctx.effect("mail:7"), asyncio.TaskGroup() as group:
            group.create_task(send(is_sent))
            await is_sent.wait()
            raise ConnectionRefusedError

    put(connection, "sends")
    await work(database, connection, sends)
    assert sent == [1]
    assert seen(connection) == [("mail:7", "uncertain", None, 0)]


@rule("M52")
@pytest.mark.parametrize("how", ["an error", "an outcome", "a text", "safe"])
async def test_a_handler_can_prove_that_nothing_happened(
    database: str, connection: Connection, how: str
) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7", safe=(KeyError,)) as effect:
            assert not effect.uncertain
            if ctx.job.claims < 3:
                match how:
                    case "an error":
                        raise effect.not_done(ValueError("no address"))
                    case "an outcome":
                        raise effect.not_done(rota.Snooze("1s", "the printer is busy"))
                    case "a text":
                        raise effect.not_done("no paper")
                    case "safe":
                        raise KeyError("no address")

    put(connection, "sends")
    await work(database, connection, sends)
    assert seen(connection) == [("mail:7", "done", None, 0)]


@rule("M52")
async def test_a_caught_error_leaves_the_effect_uncertain_within_the_same_attempt(
    database: str, connection: Connection
) -> None:
    def sends(ctx: Context) -> None:
        try:
            with ctx.effect("mail:7"):
                raise OSError("the line is dead")
        except OSError:
            pass
        with ctx.effect("mail:7"):
            raise AssertionError("it may have happened")

    put(connection, "sends")
    await work(database, connection, sends)
    [(status, attempts, error)] = ends(connection)
    assert (status, attempts, error) == ("dead", 1, "Dead")
    told = str(value(connection, "select last_error from rota.job"))
    assert told.startswith("effect 'mail:7' may have happened")
    assert "rota effects resolve" in told


@rule("M52")
async def test_a_plain_function_in_an_async_handler_is_refused_before_it_is_called(
    database: str, connection: Connection
) -> None:
    """It would block the loop, and as types have it nobody would await the call."""
    ran: list[str] = []

    async def sends(ctx: Context) -> None:
        ctx.effect("mail:7").call(ran.append, "mail")

    put(connection, "sends", max_attempts=1)
    await work(database, connection, sends)
    assert ran == []
    [(_, _, error)] = ends(connection)
    told = str(value(connection, "select last_error from rota.job"))
    assert error == "rota.errors.UsageError" and "give asyncio.to_thread" in told
    assert value(connection, "select count(*) from rota.effects") == 0


@rule("M52")
@pytest.mark.parametrize("asks", [True, False])
async def test_a_block_that_does_not_ask_whether_it_is_done_is_warned_of(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, asks: bool
) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            if asks and effect.done:
                return
        ctx.step("counts", int)
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends)
    told = "effect 'mail:7' of job 1 was done before, and its block did not ask effect.done"
    assert caplog.text.count(told) == (0 if asks else 1)
    assert "did not ask" not in caplog.text.replace(told, "")


@rule("M52")
async def test_a_handler_that_writes_done_itself_does_not_lose_the_result(
    database: str, connection: Connection
) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            effect.done = True
            effect.result = "m-1"

    put(connection, "sends")
    await work(database, connection, sends)
    assert seen(connection) == [("mail:7", "done", "m-1", 0)]


@rule("M52")
async def test_a_plain_with_in_an_async_handler_is_refused(
    database: str, connection: Connection
) -> None:
    """While the database is away, its end would keep the whole worker waiting."""

    async def sends(ctx: Context) -> None:
        with ctx.effect("mail:7"):
            raise AssertionError("not on the loop")

    put(connection, "sends")
    await work(database, connection, sends, max_attempts=1)
    assert (ends(connection), seen(connection)) == ([("dead", 1, "rota.errors.UsageError")], [])


@rule("M52")
async def test_an_effect_within_itself_is_refused(database: str, connection: Connection) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7"), ctx.effect("mail:7"):
            raise AssertionError("not twice at once")

    put(connection, "sends")
    await work(database, connection, sends, max_attempts=1)
    assert ends(connection) == [("dead", 1, "rota.errors.UsageError")]


# Several jobs


@rule("M52")
async def test_a_second_job_waits_uncharged_while_the_first_is_at_the_effect(
    database: str, connection: Connection
) -> None:
    at_it, may_end = asyncio.Event(), asyncio.Event()
    done: list[tuple[int, bool]] = []
    jobs = rota.Jobs()

    @jobs.job("sends", takes_context=True, retry=AT_ONCE)
    async def sends(ctx: Context) -> None:
        async with ctx.effect("mail:7", if_uncertain="skip") as effect:
            done.append((ctx.job.id, effect.done))
            at_it.set()
            await may_end.wait()

    first = put(connection, "sends")
    async with Hand(database, jobs, slots=3, poll_s=0.1) as hand:
        await at_it.wait()
        second = put(connection, "sends")
        snoozed = await hand.heard(JobSnoozed, job=second)
        assert f"job {first} is at effect 'mail:7'" in str(snoozed)
        [(attempts, locked)] = rows(
            connection, "select attempts, locked_by from rota.job where id = %s", second
        )
        assert (attempts, locked) == (0, None)
        assert rows(connection, "select status from rota.effects") == [("intended",)]
        may_end.set()
        await hand.until(lambda: len(done) == 2)
    assert done == [(first, False), (second, True)]


@rule("M32", "M52")
@pytest.mark.parametrize("when", ["before", "within"])
async def test_a_claim_that_is_lost_neither_begins_nor_finishes_an_effect(
    database: str, connection: Connection, when: str
) -> None:
    reached: list[str] = []

    def lose() -> None:
        connection.execute("select rota.job_retry(array(select id from rota.job))")

    def sends(ctx: Context) -> None:
        if ctx.job.claims > 2:
            return
        if when == "before":
            lose()
        with ctx.effect("mail:7", if_uncertain="repeat"):
            reached.append("within")
            if when == "within":
                lose()
        reached.append("after")

    put(connection, "sends")
    hand = await work(database, connection, sends)
    assert reached == ([] if when == "before" else ["within"])
    assert seen(connection) == ([] if when == "before" else [("mail:7", "uncertain", None, 0)])
    assert [event for event in hand.events if isinstance(event, LeaseLost)]


# Where the database is away


@pytest.mark.waits
@rule("M2", "M52")
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_has_happened_is_kept_when_the_database_comes_back(
    database: str, connection: Connection, is_async: bool
) -> None:
    """While the block runs, every connection of the worker breaks, and no new one is let in."""
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    admin = psycopg.conninfo.make_conninfo(database, dbname="postgres")

    def go_away() -> None:
        with psycopg.connect(admin, autocommit=True) as out:
            out.execute(f'alter database "{name}" allow_connections false'.encode())
            out.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = %s and application_name like 'rota%%'",
                [name],
            )

    def come_back() -> None:
        with psycopg.connect(admin, autocommit=True) as out:
            out.execute(f'alter database "{name}" allow_connections true'.encode())

    calls: list[int] = []

    def send() -> None:
        calls.append(1)
        go_away()
        asyncio.get_running_loop().call_later(1.5, come_back) if is_async else None

    async def asends(ctx: Context) -> None:
        async with ctx.effect("mail:7") as effect:
            if not effect.done:
                send()
                effect.result = "m-1"

    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            if not effect.done:
                send()
                loop.call_soon_threadsafe(loop.call_later, 1.5, come_back)
                effect.result = "m-1"

    loop = asyncio.get_running_loop()
    put(connection, "sends")
    jobs = rota.Jobs()
    jobs.job("sends", takes_context=True, retry=AT_ONCE)(asends if is_async else sends)
    async with Hand(database, jobs, poll_s=0.2) as hand:
        await hand.until(lambda: hand.worker.parts.finisher.counts["succeeded"] == 1, 60)
    assert calls == [1]
    assert seen(connection) == [("mail:7", "done", "m-1", 0)]


# Steps


@dataclass
class Charge:
    """What a step returns."""

    id: str
    cents: int


@rule("M44", "M52")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_retried_job_runs_only_the_steps_that_are_missing(
    database: str, connection: Connection, is_async: bool
) -> None:
    ran: list[str] = []

    def charge(cents: int, *, currency: str) -> Charge:
        ran.append(f"charge {cents} {currency}")
        return Charge("c-1", cents)

    def mail(about: Charge) -> None:
        ran.append(f"mail {about}")
        if len(ran) == 2:
            raise ConnectionRefusedError

    async def amail(about: Charge) -> None:
        mail(about)

    def sends(ctx: Context) -> int:
        about = ctx.step("charge", charge, 42, currency="EUR")
        assert ctx.step("mail", mail, about) is None
        return about.cents

    async def asends(ctx: Context) -> int:
        about: Charge = await ctx.step("charge", asyncio.to_thread, charge, 42, currency="EUR")
        await ctx.step("mail", amail, about)
        return about.cents

    put(connection, "sends")
    await work(database, connection, asends if is_async else sends)
    about = Charge("c-1", 42)
    assert ran == ["charge 42 EUR", f"mail {about}", f"mail {about}"]
    assert rows(connection, "select result from rota.jobs") == [(42,)]
    assert rows(
        connection, "select key, place, step_of, status, result from rota.effects order by place"
    ) == [
        ("charge", 1, 1, "done", {"id": "c-1", "cents": 42}),
        ("mail", 2, 1, "done", None),
    ]


@rule("M44")
async def test_what_a_step_returns_is_the_same_in_each_attempt(
    database: str, connection: Connection
) -> None:
    """Also the order of its fields, by which a handler may call its next steps, and its numbers."""
    got: list[str] = []

    def sends(ctx: Context) -> None:
        prices = ctx.step("prices", lambda: {"paper": 1e22, "ink": -0.0})
        got.append(repr(prices))
        for item in prices:
            ctx.step(f"order {item}", str, item)
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends)
    assert got == ["{'paper': 1e+22, 'ink': -0.0}"] * 2
    assert ends(connection)[0][:2] == ("succeeded", 2)


@rule("M44")
async def test_a_requeued_job_goes_on_and_one_with_fresh_starts_over(
    database: str, connection: Connection
) -> None:
    ran: list[str] = []

    def sends(ctx: Context) -> None:
        ctx.step("one", ran.append, "one")
        ctx.step("two", ran.append, f"two of {ctx.job.id}")
        if len(ran) < 5:
            raise rota.Dead("a person must look")

    job = put(connection, "sends")
    await work(database, connection, sends)
    app = rota.App(database)
    again = await app.aretry(job)
    await work(database, connection, sends)
    assert ran == ["one", f"two of {job}"]
    fresh = await app.aretry(again.id, fresh=True, why="the warehouse burnt down")
    await work(database, connection, sends)
    assert ran == ["one", f"two of {job}", "one", f"two of {fresh.id}"]
    [entry] = [
        entry
        for entry in (await app.jobs.atimeline(job)).entries
        if "from the first step" in entry.text
    ]
    assert entry.what == "requeue"
    await app.aclose()


@rule("M44")
@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (["a", "b"], ["b", "a"], "step 'b' is called as number 1, where it was 'a'"),
        (["a", "b"], ["a", "new", "b"], "step 'new' is called as number 2, where it was 'b'"),
        (["a", "b"], ["b"], "step 'b' is called as number 1, where it was 'a'"),
        (["a"], ["new", "a"], "step 'new' is called as number 1, where it was 'a'"),
    ],
)
async def test_steps_in_another_order_end_the_job_before_anything_runs_twice(
    database: str, connection: Connection, before: list[str], now: list[str], told: str
) -> None:
    ran: list[str] = []

    def sends(ctx: Context) -> None:
        for name in before if ctx.job.attempts == 1 else now:
            ctx.step(name, ran.append, name)
        raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends, max_attempts=2)
    assert ran == before
    [(status, attempts, error)] = ends(connection)
    assert (status, attempts, error) == ("dead", 2, "Dead")
    assert told in str(value(connection, "select last_error from rota.job"))


@rule("M44")
async def test_more_steps_at_the_end_are_no_change_of_order(
    database: str, connection: Connection
) -> None:
    ran: list[str] = []

    async def sends(ctx: Context) -> None:
        async def note(name: str) -> None:
            ran.append(name)

        names = ["a", "b"] if ctx.job.attempts == 1 else ["a", "b", "c"]
        await asyncio.gather(*(ctx.step(name, note, name) for name in names))
        if ctx.job.attempts == 1:
            raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends)
    assert sorted(ran) == ["a", "b", "c"]


@rule("M44")
async def test_a_step_that_is_interrupted_runs_again_unless_it_says_otherwise(
    database: str, connection: Connection
) -> None:
    ran: list[str] = []

    def once(name: str) -> None:
        ran.append(name)
        if ran.count(name) == 1:
            raise TimeoutError

    def sends(ctx: Context) -> None:
        ctx.step("repeats", once, "repeats")
        ctx.step("stops", once, "stops", if_uncertain="dead")

    put(connection, "sends")
    await work(database, connection, sends)
    assert ran == ["repeats", "repeats", "stops"]
    told = str(value(connection, "select last_error from rota.job"))
    assert told.startswith("step 'stops' may have happened")


@rule("M44", "M83")
@pytest.mark.parametrize(
    ("result", "told"),
    [
        (object(), "cannot be kept"),
        ("x" * 70_000, "cannot be kept: larger than 65,536 bytes"),
        ("no number", "what it says: Expected `int`, got `str`. The step has run: "),
    ],
)
async def test_a_step_whose_result_cannot_be_kept_ends_the_job_with_the_reason(
    database: str, connection: Connection, result: object, told: str
) -> None:
    def sends(ctx: Context) -> None:
        ctx.step("makes", make)

    def make() -> Any:
        return result

    if result == "no number":
        make.__annotations__["return"] = int
    put(connection, "sends")
    await work(database, connection, sends)
    assert ends(connection) == [("dead", 1, "Dead")]
    last_error = str(value(connection, "select last_error from rota.job"))
    assert told in last_error
    assert "`rota effects resolve makes --job 1 --done --result …`" in last_error


@rule("M44")
async def test_a_step_whose_function_returns_another_type_in_a_new_release_is_not_run_again(
    database: str, connection: Connection
) -> None:
    ran: list[int] = []

    def charge() -> str:
        ran.append(1)
        return "c-1"

    def sends(ctx: Context) -> None:
        ctx.step("charge", charge)
        charge.__annotations__["return"] = int
        raise ValueError("later")

    put(connection, "sends")
    await work(database, connection, sends)
    assert ran == [1]
    assert ends(connection) == [("dead", 2, "Dead")]
    last_error = str(value(connection, "select last_error from rota.job"))
    assert last_error.startswith("what is kept of step 'charge' is not what its function says")


@rule("M44")
async def test_an_async_function_is_refused_as_a_step_of_a_plain_handler(
    database: str, connection: Connection
) -> None:
    async def charge() -> None:
        raise AssertionError("nobody awaits it")

    def pick(send: Callable[[], Any]) -> Any:
        return send()

    def sends(ctx: Context, what: str) -> Any:
        if what == "step":
            return ctx.step("charge", charge)
        return ctx.effect("charge").call(charge if what == "effect" else partial(pick, charge))

    for what in ("step", "effect", "by another"):
        put(connection, "sends", what=what)
    await work(database, connection, sends, max_attempts=1)
    assert [status for _, status, *_ in seen(connection) if status != "not done"] == []
    told = rows(connection, "select last_error from rota.job order by id")
    assert told == [
        (f"{what} 'charge': an async function needs an async handler, which awaits the call",)
        for what in ("step", "effect", "effect")
    ]


@rule("M52")
async def test_a_result_of_an_effect_that_is_too_large_is_left_out_with_a_warning(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            effect.result = "x" * 70_000

    put(connection, "sends")
    await work(database, connection, sends)
    assert seen(connection) == [("mail:7", "done", None, 0)]
    assert "the result of effect 'mail:7' of job 1 is not kept: larger than" in caplog.text


@rule("M44")
async def test_a_step_with_a_name_that_was_used_is_refused(
    database: str, connection: Connection
) -> None:
    def sends(ctx: Context) -> None:
        ctx.step("page", int)
        ctx.step("page", int)

    put(connection, "sends")
    await work(database, connection, sends, max_attempts=1)
    assert "give each step of a job a name of its own" in str(
        value(connection, "select last_error from rota.job")
    )


# In a process of its own


@pytest.mark.waits
@rule("M52", "M44")
@pytest.mark.parametrize("how", ["plain", "async"])
async def test_effects_and_steps_of_a_handler_in_a_process(
    database: str, connection: Connection, tmp_path: Path, how: str
) -> None:
    notes = tmp_path / "notes"
    name = "guarded" if how == "plain" else "aguarded"
    jobs = rota.Jobs()
    jobs._types[name] = heavy.jobs.types[name]
    put(connection, name, notes=str(notes))
    await work_on(database, connection, jobs)
    assert notes.read_text().split() == ["step", "send", "send"]
    assert rows(
        connection,
        "select key, status, result, uncertain_before from rota.effects order by intended_at",
    ) == [("prepare", "done", 12, 0), ("mail", "done", "m-1", 1)]
    assert rows(connection, "select status, attempts, result from rota.jobs") == [
        ("succeeded", 3, 12)
    ]
    backends = rows(
        connection,
        "select application_name from pg_stat_activity "
        "where datname = current_database() and application_name = 'rota handler'",
    )
    assert backends == []


def test_it_is_told_where_no_worker_keeps_effects() -> None:
    context = rota.Context(make_job(), "nobody")
    with pytest.raises(rota.UsageError, match="only a worker"), context.effect("mail:7"):
        pass
    with pytest.raises(rota.UsageError, match="if_uncertain must be one of skip, repeat, dead"):
        context.effect("mail:7", if_uncertain="ask")  # type: ignore[arg-type]
    with pytest.raises(rota.UsageError, match="an effect's key"):
        context.effect("")
    with pytest.raises(rota.UsageError, match="safe must be a tuple"):
        context.effect("mail:7", safe=KeyError)  # type: ignore[arg-type]


@dataclass
class Refund:
    id: str


def refund_or_charge() -> Refund | Charge:
    return Refund("r-1")


@rule("M52")
async def test_an_effect_of_what_json_cannot_tell_apart_is_kept_as_plain_values(
    database: str, connection: Connection
) -> None:
    def sends(ctx: Context) -> str:
        kept: Any = ctx.effect("r").call(refund_or_charge)
        return str(kept["id"])

    put(connection, "sends", max_attempts=1)
    await work(database, connection, sends)
    assert rows(connection, "select result from rota.jobs") == [("r-1",)]


@rule("M45")
def test_what_rota_says_of_an_effect_has_no_secret_that_is_in_its_key(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_key("k1"))
    app = rota.App(database)

    @app.job(takes_context=True)
    def charge(ctx: Context, token: rota.Secret[str]) -> None:
        """Do it without asking whether it was done; its result cannot be kept."""
        for _ in range(2):
            with ctx.effect(f"charge:{token.reveal()}") as effect:
                effect.result = object()

    app.sync()
    charge.enqueue(rota.Secret("tok-8f2e71"))
    app.drain()
    app.close()
    assert "the result of effect 'charge:***' of job 1 is not kept" in caplog.text
    assert "effect 'charge:***' of job 1 was done before" in caplog.text
    assert "tok-8f2e71" not in caplog.text
