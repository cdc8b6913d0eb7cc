"""Effects and steps: what an attempt finds of those before it."""

from __future__ import annotations

import asyncio
import re
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.declare.secret import VARIABLE, make_key
from rota.worker import effects
from tests.docs.reader import read_page
from tests.support.job import make_job
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker import heavy
from tests.worker.attempts import Attempts
from tests.worker.hand import Hand
from tests.worker.table import Connection, expire_leases, put, rows, status, value

Context = rota.Context
Policy = rota.records.IfUncertain


async def work(
    database: str, connection: Connection, handler: Callable[..., Any], **options: Any
) -> None:
    """Enqueue a job of this handler, and run its attempts until it is over or dead."""
    put(connection, "sends")
    async with Attempts(database, connection, handler, **options) as attempts:
        await attempts.run_all()


def seen(connection: Connection) -> list[tuple[Any, ...]]:
    """The effects: key, status, result, uncertain before."""
    return rows(
        connection, "select key, status, result, uncertain_before from rota.effects order by key"
    )


def ends(connection: Connection) -> list[tuple[Any, ...]]:
    """How each job ended."""
    return rows(connection, "select status, attempts, error_type from rota.jobs order by id")


def last_error(connection: Connection) -> str:
    """Of the job that came last."""
    read = "select last_error from rota.jobs order by id desc limit 1"
    return str(value(connection, read))


# What a later attempt finds


@dataclass
class Receipt:
    """What a provider says."""

    number: int
    parts: tuple[str, ...]


@rule("M52")
async def test_an_effect_is_done_once_and_each_attempt_finds_what_it_kept(
    database: str, connection: Connection
) -> None:
    found: list[Any] = []
    sent: list[int] = []

    def send(number: int, *, parts: tuple[str, ...]) -> Receipt:
        sent.append(number)
        return Receipt(number, parts)

    async def asend(number: int, *, parts: tuple[str, ...]) -> Receipt:
        return send(number, parts=parts)

    async def asends(ctx: Context) -> None:
        async with ctx.effect("async block") as effect:
            found.append((effect.key, effect.done, effect.uncertain, effect.result))
            if not effect.done:
                effect.result = {"id": "m-1"}
        found.append(await ctx.effect("async call").call(asend, 7, parts=("a", "b")))
        if ctx.job.attempts == 1:
            raise ValueError("later")

    def sends(ctx: Context) -> None:
        with ctx.effect("block") as effect:
            found.append((effect.key, effect.done, effect.uncertain, effect.result))
            if not effect.done:
                effect.result = {"id": "m-1"}
        found.append(ctx.effect("call").call(send, 7, parts=("a", "b")))
        if ctx.job.attempts == 1:
            raise ValueError("later")

    for handler, prefix in ((asends, "async "), (sends, "")):
        await work(database, connection, handler)
        receipt, key = Receipt(7, ("a", "b")), f"{prefix}block"
        assert found == [
            (key, False, False, None), receipt, (key, True, False, {"id": "m-1"}), receipt,
        ]  # fmt: skip
        assert sent == [7]
        found.clear()
        sent.clear()
    kept = {"number": 7, "parts": ["a", "b"]}
    assert [(key, status, result) for key, status, result, _ in seen(connection)] == [
        ("async block", "done", {"id": "m-1"}),
        ("async call", "done", kept),
        ("block", "done", {"id": "m-1"}),
        ("call", "done", kept),
    ]


@dataclass
class Charge:
    """What a step returns."""

    id: str
    cents: int


@dataclass
class Refund:
    """What JSON does not tell from a charge."""

    id: str


def refund_or_charge() -> Refund | Charge:
    return Refund("r-1")


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
        kept: Any = ctx.effect("c").call(refund_or_charge)
        got.append([ctx.effect("a").call(send), ctx.effect("b").call(promise), kept["id"]])
        if ctx.job.attempts == 1:
            raise ValueError("later")

    await work(database, connection, sends)
    assert (sent, got) == ([1, 2], [[None, "no number", "r-1"]] * 2)
    assert seen(connection)[:2] == [("a", "done", None, 0), ("b", "done", "no number", 0)]
    assert "the result of effect 'a' of job 1 is not kept" in caplog.text


# What may have happened


def refuse(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://provider", code, "no", Message(), None)


POLICIES: dict[Policy, tuple[int, str, str]] = {
    "dead": (1, "dead", "uncertain"),
    "skip": (1, "succeeded", "uncertain"),
    "repeat": (2, "succeeded", "done"),
}
"""Of a try of which nobody knows whether it happened: messages, the job, the effect."""


@rule("M52")
async def test_what_may_have_happened_is_for_the_policy_and_a_refusal_is_an_ordinary_failure(
    database: str, connection: Connection
) -> None:
    """Whether it was a block or a call, in plain code or on a loop."""
    unknown = (TimeoutError, ConnectionResetError, OSError, asyncio.CancelledError)
    cases: list[tuple[Any, Policy]] = [
        *((error, policy) for error in unknown for policy in POLICIES),
        *((refuse, policy) for policy in POLICIES),
        (ConnectionRefusedError, "dead"),
    ]
    for number, (fails, policy) in enumerate(cases):
        sent: list[str] = []
        key = f"mail:{number:02}"

        def send(sent: list[str] = sent, fails: Any = fails) -> str:
            sent.append("a message")
            if len(sent) == 1:
                raise fails(503) if fails is refuse else fails()
            return "m-1"

        async def asend(send: Callable[[], str] = send) -> str:
            return send()

        def sends(ctx: Context, key: str = key, policy: Policy = policy, send: Any = send) -> None:
            ctx.effect(key, if_uncertain=policy).call(send)

        async def asends(
            ctx: Context, key: str = key, policy: Policy = policy, asend: Any = asend
        ) -> None:
            async with ctx.effect(key, if_uncertain=policy) as effect:
                if not effect.done:
                    await asend()

        is_async = fails is asyncio.CancelledError or number % 2
        await work(database, connection, asends if is_async else sends)
        is_unknown = fails in unknown
        messages, status, effect = POLICIES[policy] if is_unknown else (2, "succeeded", "done")
        assert len(sent) == messages, (fails, policy)
        assert ends(connection)[-1][:2] == (status, 2), (fails, policy)
        repeated = is_unknown and policy == "repeat"
        [*_, (_, became, _, before)] = seen(connection)
        assert (became, before) == (effect, int(repeated)), (fails, policy)


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

    await work(database, connection, sends)
    assert sent == [1]
    assert seen(connection) == [("mail:7", "uncertain", None, 0)]


@rule("M52")
async def test_a_handler_can_prove_that_nothing_happened(
    database: str, connection: Connection
) -> None:
    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7", safe=(KeyError,)) as effect:
            assert not effect.uncertain
            match ctx.job.claims:
                case 1:
                    raise effect.not_done(ValueError("no address"))
                case 2:
                    raise effect.not_done(rota.Snooze("1s", "the printer is busy"))
                case 3:
                    raise effect.not_done("no paper")
                case 4:
                    raise KeyError("no address")

    await work(database, connection, sends)
    assert value(connection, "select claims from rota.jobs") == 5
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

    await work(database, connection, sends)
    assert ends(connection) == [("dead", 1, "Dead")]
    told = last_error(connection)
    assert told.startswith("effect 'mail:7' may have happened")
    assert "rota effects resolve" in told


# What is refused


@rule("M52")
async def test_what_would_block_the_loop_or_meet_itself_is_refused_before_anything_happens(
    database: str, connection: Connection
) -> None:
    ran: list[str] = []

    async def calls_a_plain_function(ctx: Context) -> None:
        ctx.effect("mail:7").call(ran.append, "mail")

    async def enters_a_plain_block(ctx: Context) -> None:
        with ctx.effect("mail:7"):
            ran.append("mail")

    def enters_it_within_itself(ctx: Context) -> None:
        with ctx.effect("mail:8"), ctx.effect("mail:8"):
            ran.append("mail")

    def takes_two_steps_of_one_name(ctx: Context) -> None:
        ctx.step("page", int)
        ctx.step("page", int)

    for handler, why in (
        (calls_a_plain_function, "give asyncio.to_thread"),
        (enters_a_plain_block, "async with"),
        (enters_it_within_itself, "effect 'mail:8'"),
        (takes_two_steps_of_one_name, "give each step of a job a name of its own"),
    ):
        await work(database, connection, handler, max_attempts=1)
        assert ran == [], handler
        assert ends(connection)[-1] == ("dead", 1, "rota.errors.UsageError"), handler
        assert why in last_error(connection)
    assert [key for key, *_ in seen(connection) if key == "mail:7"] == []


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
    async with Attempts(database, connection, sends, max_attempts=1) as attempts:
        await attempts.run_all()
    assert [status for _, status, *_ in seen(connection) if status != "not done"] == []
    told = rows(connection, "select last_error from rota.job order by id")
    assert told == [
        (f"{what} 'charge': an async function needs an async handler, which awaits the call",)
        for what in ("step", "effect", "effect")
    ]


def test_it_is_told_where_no_worker_keeps_effects() -> None:
    def generate() -> Iterator[None]:
        yield

    context = rota.Context(make_job(), "nobody")
    with pytest.raises(rota.UsageError, match="'mail:7': a generator function does nothing"):
        context.effect("mail:7").call(generate)
    with pytest.raises(rota.UsageError, match="only a worker"), context.effect("mail:7"):
        pass
    with pytest.raises(rota.UsageError, match="if_uncertain must be one of skip, repeat, dead"):
        context.effect("mail:7", if_uncertain="ask")  # type: ignore[arg-type]
    with pytest.raises(rota.UsageError, match="an effect's key"):
        context.effect("")
    with pytest.raises(rota.UsageError, match="safe must be a tuple"):
        context.effect("mail:7", safe=KeyError)  # type: ignore[arg-type]


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


# Several jobs


# Where the database is away


@rule("M2", "M52")
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_has_happened_is_kept_when_the_database_comes_back(
    database: str, connection: Connection, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the block runs, its connections break, and no new one is let in before the first try
    has failed."""
    monkeypatch.setattr("rota.store.db.CONNECT_TIMEOUT_S", 1)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    admin = psycopg.conninfo.make_conninfo(database, dbname="postgres")

    def allow(is_allowed: bool) -> None:
        with psycopg.connect(admin, autocommit=True) as out:
            out.execute(f'alter database "{name}" allow_connections {is_allowed}'.encode())
            if not is_allowed:
                out.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = %s and application_name like 'rota%%'",
                    [name],
                )

    calls: list[int] = []
    tries: list[Exception] = []
    original = effects._raise_unless_again

    def try_again(context: Context, error: Any) -> None:
        tries.append(error)
        allow(True)
        original(context, error)

    monkeypatch.setattr(effects, "_raise_unless_again", try_again)

    async def asends(ctx: Context) -> None:
        async with ctx.effect("mail:7") as effect:
            if not effect.done:
                calls.append(1)
                allow(False)
                effect.result = "m-1"

    def sends(ctx: Context) -> None:
        with ctx.effect("mail:7") as effect:
            if not effect.done:
                calls.append(1)
                allow(False)
                effect.result = "m-1"

    await work(database, connection, asends if is_async else sends)
    assert calls == [1] and tries
    assert seen(connection) == [("mail:7", "done", "m-1", 0)]


# Steps


@rule("M44", "M52")
async def test_a_retried_job_runs_only_the_steps_that_are_missing(
    database: str, connection: Connection
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

    about = Charge("c-1", 42)
    for handler in (sends, asends):
        await work(database, connection, handler)
        assert ran == ["charge 42 EUR", f"mail {about}", f"mail {about}"]
        ran.clear()
    assert rows(connection, "select result from rota.jobs") == [(42,), (42,)]
    steps = "select key, place, step_of, status, result from rota.effects order by step_of, place"
    assert rows(connection, steps) == [
        step
        for job in (1, 2)
        for step in (
            ("charge", 1, job, "done", {"id": "c-1", "cents": 42}),
            ("mail", 2, job, "done", None),
        )
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

    await work(database, connection, sends)
    assert got == ["{'paper': 1e+22, 'ink': -0.0}"] * 2
    assert ends(connection)[0][:2] == ("succeeded", 2)


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

    await work(database, connection, sends)
    assert ran == ["repeats", "repeats", "stops"]
    assert last_error(connection).startswith("step 'stops' may have happened")


@rule("M44", "M83")
async def test_a_step_whose_result_cannot_be_kept_ends_the_job_with_the_reason(
    database: str, connection: Connection
) -> None:
    for result, told in (
        (object(), "cannot be kept"),
        ("x" * 70_000, "cannot be kept: larger than 65,536 bytes"),
        ("no number", "what it says: Expected `int`, got `str`. The step has run: "),
    ):

        def make(result: object = result) -> Any:
            return result

        def sends(ctx: Context, make: Any = make) -> None:
            ctx.step("makes", make)

        if result == "no number":
            make.__annotations__["return"] = int
        await work(database, connection, sends)
        assert ends(connection)[-1] == ("dead", 1, "Dead")
        why = last_error(connection)
        assert told in why
        number = len(ends(connection))
        assert f"`rota effects resolve makes --job {number} --done --result …`" in why


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

    await work(database, connection, sends)
    assert ran == [1]
    assert ends(connection) == [("dead", 2, "Dead")]
    assert last_error(connection).startswith(
        "what is kept of step 'charge' is not what its function says"
    )


# In a process of its own


@pytest.mark.nightly
@rule("M52", "M44")
async def test_effects_and_steps_of_a_handler_in_a_process(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    """Plain and on a loop; each dies within an effect, fails after it, then succeeds."""
    jobs = rota.Jobs()
    for name in ("guarded", "aguarded"):
        jobs._types[name] = heavy.jobs.types[name]
        put(connection, name, notes=str(tmp_path / name))
    for _ in range(3):
        connection.execute("update rota.job set run_at = now() where status = 'failed'")
        await Hand(database, jobs, drain=True).run()
    for name in ("guarded", "aguarded"):
        assert (tmp_path / name).read_text().split() == ["step", "send", "send"]
    steps = "select key, status, result, uncertain_before from rota.effects order by 1"
    assert [row for row in rows(connection, steps) if row[0] != "prepare"] == [
        ("amail", "done", "m-1", 1),
        ("mail", "done", "m-1", 1),
    ]
    assert (
        rows(connection, "select status, attempts, result from rota.jobs")
        == [("succeeded", 3, 12)] * 2
    )
    left = (
        "select from pg_stat_activity "
        "where datname = current_database() and application_name = 'rota handler'"
    )
    eventually(lambda: rows(connection, left) == [])


PAGE = read_page("effects.md")


def promised() -> list[tuple[str, dict[str, tuple[int, str]]]]:
    """The table of the page: where an attempt may end, and what comes of that by policy."""
    header, *lines = re.findall(r"^\| (?:the first|before the|after the).*\|$", PAGE, re.MULTILINE)
    policies = re.findall(r'"(\w+)"', header)
    table = []
    for line in lines:
        place, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        said = [re.fullmatch(r"sent (\d) times?, (\w+)", cell) for cell in cells]
        ends = [(int(match[1]), match[2]) for match in said if match is not None]
        table.append((place, dict(zip(policies, ends, strict=True))))
    return table


@rule("M52")
@pytest.mark.parametrize("policy", ["dead", "skip", "repeat"])
async def test_an_attempt_that_ends_at_any_step_does_what_the_page_promises(
    database: str, connection: Connection, policy: rota.records.IfUncertain
) -> None:
    sent: list[str] = []

    def end_after(steps: int, ctx: rota.Context) -> None:
        """End as a killed process does: nothing is done after so many steps."""
        block = ctx.effect(f"mail:{ctx.job.id}", if_uncertain=policy)
        deliver, leave = partial(sent.append, "m-1"), partial(block.__exit__, None, None, None)
        for step in (block.__enter__, deliver, leave)[:steps]:
            step()

    def sends(ctx: rota.Context) -> None:
        with ctx.effect(f"mail:{ctx.job.id}", if_uncertain=policy) as effect:
            if not effect.done:
                sent.append("m-1")

    async with Attempts(database, connection, sends) as attempts:
        for steps, (place, ends) in enumerate(promised()):
            sent.clear()
            job = put(connection, "sends")
            [first] = attempts.claim()
            await asyncio.to_thread(end_after, steps, attempts.make_context(first))
            expire_leases(connection)
            connection.execute("select rota.job_reap('-infinity', 100)")
            await attempts.run_all()
            assert (len(sent), status(connection, job)) == ends[policy], place
    assert steps == 3
