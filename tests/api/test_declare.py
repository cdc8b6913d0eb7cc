"""Declaring job types: what is refused, and an error that says where."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

import rota
from rota.errors import DeclarationError, UsageError
from tests.support.rules import rule


def upgraded(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


OUT_OF_RANGE: dict[str, list[object]] = {
    "queue": ["", "q" * 101, 5, "default,email", "two\nlines"],
    "priority": [101, -101, 1.5, True],
    "max_attempts": [0, 10_001, "3"],
    "retry": ["10s", rota.Exponential],
    "timeout": ["0s", 20, timedelta(seconds=-1), "20"],
    "lease": ["999ms", "1 hour"],
    "expires": [-1, "-1d", "0s", timedelta(days=40_000)],
    "retry_on": [OSError, (OSError, "TimeoutError")],
    "fatal_on": [[LookupError], (int,)],
    "takes_context": ["yes"],
    "transactional": [None, 1, "yes"],
    "take_context": [True],
    "version": [0, 32_768, "1", 2],
    "upgrade": [{1: upgraded}, [upgraded]],
    "aliases": ["old_name", ("",), 5, ("a" * 201,)],
    "unique": ["user_id"],
    "ordered": [rota.Unique()],
    "process": ["thread", None],
    "history": ["none", None],
    "on_lost": ["forget"],
    "on_expired": ["cancel", None],
}


@rule("M12", "M21", "M31", "M35", "M40")
@pytest.mark.parametrize("option", OUT_OF_RANGE)
def test_an_option_out_of_range_is_refused_by_the_names_of_job_type_and_option(option: str) -> None:
    job: Callable[..., Any] = rota.Jobs().job
    for value in OUT_OF_RANGE[option]:
        with pytest.raises(rota.errors.DeclarationError, match=option) as refused:
            job("send_mail", **{option: value})
        assert "'send_mail'" in str(refused.value), value


@rule("M12", "M51", "M60")
def test_a_group_of_options_refuses_a_value_out_of_range() -> None:
    wrong: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        (rota.Unique, {"key": "user_id"}, "the key of unique must be a text with"),
        (rota.Unique, {"on_duplicate": "ignore"}, "on_duplicate must be 'keep' or"),
        (rota.Unique, {"scope": "once"}, "scope must be 'ttl'"),
        (rota.Unique, {"ttl": 90}, "ttl must be a timedelta or a string"),
        (rota.Unique, {"ttl": "-1d"}, "ttl must not be negative"),
        (rota.Unique, {"ttl": "1d", "scope": "pending"}, 'ttl needs scope="ttl"'),
        (rota.Ordered, {"key": "invoice"}, "the key of ordered must be a text with"),
        (rota.Ordered, {"capacity": 0}, "capacity must be a whole number from 1 to 1,000"),
        (rota.Ordered, {"capacity": 1_001}, "capacity must be a whole number from 1 to 1,000"),
        (rota.Ordered, {"while_retrying": "keep"}, "while_retrying must be 'hold' or 'release'"),
        (rota.Ordered, {"after_death": "stop"}, "after_death must be 'continue' or 'halt'"),
        (rota.Process, {"max_memory": "1MiB"}, "max_memory must be at least 16 MiB"),
        (rota.Process, {"recycle_after": 0}, "recycle_after must be a whole number from 1"),
        (rota.Chunk, {"jobs_max": 0}, "chunk must be a whole number from 1 to 10,000"),
        (rota.Chunk, {"jobs_max": 10, "wait": "11s"}, "wait must be at most 10 s"),
    ]
    for group, values, why in wrong:
        with pytest.raises(rota.UsageError, match=re.escape(why)):
            group(**values)


@pytest.mark.parametrize(
    "upgrade", [{1: upgraded}, {1: upgraded, 3: upgraded}, {1: upgraded, 2: "no function"}]
)
@rule("M12")
def test_a_version_needs_a_function_for_each_older_one(upgrade: dict[int, Any]) -> None:
    with pytest.raises(rota.errors.DeclarationError, match=r"'send_mail'.*upgrade"):
        rota.Jobs().job("send_mail", version=3, upgrade=upgrade)


def test_a_job_type_without_a_name_is_called_like_its_function() -> None:
    jobs = rota.Jobs()

    @jobs.job
    def send_mail(user: int) -> None: ...

    @jobs.job(queue="slow", takes_context=True)
    async def build_report(ctx: rota.Context) -> None: ...

    assert list(jobs.types) == ["send_mail", "build_report"]
    assert jobs.types["build_report"]._declaration.options.queue == "slow"
    with pytest.raises(rota.errors.DeclarationError, match="this handler needs a name"):
        jobs.job(lambda: None)
    wrong: list[Any] = ["", "a" * 201, "two\nlines", 5]
    for name in wrong:
        with pytest.raises(rota.errors.DeclarationError, match="name"):
            jobs.job(name)


def test_a_retry_takes_no_duration_for_its_reason() -> None:
    wrong: list[Any] = [10, 1.5, "10s", timedelta(seconds=3)]
    for given in wrong:
        with pytest.raises(rota.UsageError, match=r"to wait: rota\.Retry\(after="):
            rota.Retry(given)
    assert str(rota.Retry("in 10s", after="10s")) == "in 10s"


def test_a_name_is_no_database_url() -> None:
    with pytest.raises(rota.errors.ConfigurationError, match=r"rota\.App takes it first"):
        rota.App("shop").get(1)


def star_args(*args: int) -> None: ...
def star_kwargs(**kwargs: int) -> None: ...
def positional_only(a: int, /) -> None: ...
def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


class Callables:
    def __call__(self, a: int) -> None: ...


def test_a_handler_that_cannot_be_called_with_a_payload_is_refused() -> None:
    wrong: list[tuple[Any, str]] = [
        (star_args, r"parameter 'args': a handler cannot take \*args"),
        (star_kwargs, r"parameter 'kwargs': a handler cannot take \*\*kwargs"),
        (positional_only, "parameter 'a'.*positional-only"),
        (generator, "must be a plain or an async function"),
        (async_generator, "must be a plain or an async function"),
        (Callables(), "must be a plain or an async function"),
        (Callables, "must be a plain or an async function"),
        ("send_mail", "must be a plain or an async function"),
    ]
    jobs = rota.Jobs()
    for handler, why in wrong:
        with pytest.raises(rota.errors.DeclarationError, match=f"job type 'send_mail'.*{why}"):
            jobs.job("send_mail")(handler)
    assert jobs.types == {}


def test_takes_context_and_a_parameter_for_it_belong_together() -> None:
    def handler(ctx: rota.Context) -> None: ...

    with pytest.raises(
        rota.errors.DeclarationError,
        match=r"'pack'.*takes_context=True needs a first, positional parameter",
    ):
        rota.Jobs().job("pack", takes_context=True)(lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(
        rota.errors.DeclarationError, match=r"'ctx'.*declare the job type with takes_context=True"
    ):
        rota.Jobs().job("send_mail")(handler)


def test_a_duplicate_name_is_refused_and_both_places_named() -> None:
    jobs = rota.Jobs()

    @jobs.job("send_mail")
    def first() -> None: ...

    def second() -> None: ...

    with pytest.raises(
        rota.errors.DeclarationError, match="'send_mail' is declared twice"
    ) as refused:
        jobs.job("send_mail")(second)

    lines = {function.__code__.co_firstlineno for function in (first.func, second)}
    assert {
        int(line) for line in re.findall(r"test_declare\.py:(\d+)", str(refused.value))
    } == lines
    assert jobs.types["send_mail"] is first


CELL = """
@app.job
def greet(name: str) -> str:
    return {said!r} + name

app.schedule("greeting", "0 8 * * *", greet.new({said!r}))
"""

CELL_OF_JOBS = """
@jobs.job
def greet() -> None: ...
"""
FACTORY = """
def make(said):
    @jobs.job
    def greet() -> None: ...
make("a")
make("b")
"""


@rule("M12")
def test_a_notebooks_cell_that_runs_again_declares_its_job_type_and_schedule_again() -> None:
    app = rota.App("postgresql://localhost:1/nowhere")
    notebook: dict[str, Any] = {"__name__": "__main__", "app": app}
    for number, said in enumerate(("Hello ", "Good day ", "Good day ")):
        exec(compile(CELL.format(said=said), f"<cell {number}>", "exec"), notebook)

    assert app.types["greet"]("Ann") == "Good day Ann"
    assert app.types["greet"] is notebook["greet"]
    assert list(app._declarations.types) == ["greet"]
    assert "Good day " in app._declarations.encode_schedules()

    other = {"__name__": "other", "app": app}
    with pytest.raises(rota.errors.DeclarationError, match=r"'greet' is declared twice: at <cell"):
        exec(compile(CELL.format(said="Hey "), "<other>", "exec"), other)
    schedule = "app.schedule('greeting', '0 9 * * *', app.types['greet'].new('Hey '))"
    with pytest.raises(rota.errors.DeclarationError, match=r"'greeting' is declared twice"):
        exec(compile(schedule, "<other>", "exec"), other)
    assert app.types["greet"] is notebook["greet"]


@rule("M12")
def test_two_functions_of_one_name_in_one_file_are_two_declarations() -> None:
    for source in (CELL_OF_JOBS * 2, FACTORY):
        names: dict[str, Any] = {"__name__": "shop", "jobs": rota.Jobs()}
        with pytest.raises(rota.errors.DeclarationError, match="declared twice: at shop"):
            exec(compile(source, "shop.py", "exec"), names)


@rule("M12")
def test_an_alias_counts_as_a_name_also_among_the_jobs_of_one_app() -> None:
    mail, reports = rota.Jobs(), rota.Jobs()
    mail.job("send_mail", aliases=("mail",))(lambda: None)
    reports.job("mail")(lambda: None)

    with pytest.raises(
        rota.errors.DeclarationError, match=r"'mail' is declared twice: at .*test_declare"
    ):
        rota.App(jobs=[mail, reports])


@rule("M12")
def test_a_name_given_twice_after_the_app_took_its_jobs_is_refused_when_they_are_used() -> None:
    mail = rota.Jobs()
    app = rota.App("postgresql://localhost:1/nowhere", jobs=[mail])
    mail.job("send_mail")(lambda: None)
    app.job("send_mail")(lambda: None)

    with pytest.raises(
        rota.errors.DeclarationError, match=r"'send_mail' is declared twice: at .*test_declare"
    ):
        app.drain()


@rule("M12")
def test_a_parameter_may_be_called_self() -> None:
    @rota.Jobs().job("clone")
    def clone(self: int) -> int:
        return self

    assert (clone.new(self=7).payload_json, clone.new(7).payload_json) == (
        '{"self":7}',
        '{"self":7}',
    )
    assert (clone(self=7), clone(7)) == (7, 7)
    for enqueue in (clone.enqueue, clone.aenqueue):
        with pytest.raises(rota.UsageError, match="belong to no App yet"):
            enqueue(self=7)


def test_a_jobs_belongs_to_one_app() -> None:
    jobs = rota.Jobs()
    send_mail = jobs.job("send_mail")(lambda: None)
    with pytest.raises(rota.UsageError, match=r"belong to no App yet: create rota\.App"):
        send_mail.enqueue()
    rota.App(jobs=[jobs])
    with pytest.raises(rota.errors.DeclarationError, match="belongs to another App already"):
        rota.App(jobs=[jobs])


async def test_calling_the_decorated_name_or_func_runs_the_function() -> None:
    jobs = rota.Jobs()

    @jobs.job("add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    @jobs.job("double", takes_context=True)
    async def double(ctx: rota.Context, a: int) -> int:
        return 2 * a + len(ctx.worker)

    ctx = rota.Context(cast("rota.Job", None), worker="w")
    assert (
        add(1),
        add(a=1, b=2),
        add.func(2),
        await double(ctx, 4),
        await double.func(ctx, a=5),
    ) == (2, 3, 3, 9, 11)


@rule("M63")
def test_the_name_of_a_breaker_has_no_blanks_because_a_key_follows_it() -> None:
    with pytest.raises(UsageError, match="a breaker's name has no blanks, unlike 'the shop'"):
        rota.Breaker("the shop")


@rule("M63")
def test_a_job_type_with_blanks_names_its_breaker() -> None:
    jobs = rota.Jobs()
    with pytest.raises(DeclarationError, match=r"as in rota.Breaker\('call_the_shop'\)"):
        jobs.job("call the shop", breaker=rota.Breaker())(lambda: None)
    jobs.job("call the shop", breaker=rota.Breaker("shop"))(lambda: None)


@rule("M63")
def test_types_that_share_a_breaker_all_have_keys_or_none() -> None:
    jobs = rota.Jobs()
    jobs.job("a", breaker=rota.Breaker("shop"))(lambda host: None)
    jobs.job("b", breaker=rota.Breaker("shop", key=lambda host: host))(lambda host: None)
    with pytest.raises(DeclarationError, match=r"without a key at .*, and .* with a key at "):
        rota.App(jobs=[jobs])
