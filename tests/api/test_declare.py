"""Declaring job types: what is refused, and an error that says where."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import rota
from tests.support.rules import rule


def upgraded(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


@rule("M12", "M21", "M31", "M35", "M40")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", ""),
        ("queue", "q" * 101),
        ("queue", 5),
        ("queue", "default,email"),
        ("queue", "two\nlines"),
        ("priority", 101),
        ("priority", -101),
        ("priority", 1.5),
        ("priority", True),
        ("max_attempts", 0),
        ("max_attempts", 10_001),
        ("max_attempts", "3"),
        ("retry", "10s"),
        ("retry", rota.Exponential),
        ("timeout", "0s"),
        ("timeout", 20),
        ("timeout", timedelta(seconds=-1)),
        ("timeout", "20"),
        ("lease", "999ms"),
        ("lease", "1 hour"),
        ("expires", -1),
        ("expires", "-1d"),
        ("expires", "0s"),
        ("expires", timedelta(days=40_000)),
        ("retry_on", OSError),
        ("retry_on", (OSError, "TimeoutError")),
        ("fatal_on", [LookupError]),
        ("fatal_on", (int,)),
        ("takes_context", "yes"),
        ("take_context", True),
        ("prio", 5),
        ("version", 0),
        ("version", 32_768),
        ("version", "1"),
        ("version", 2),
        ("upgrade", {1: upgraded}),
        ("upgrade", [upgraded]),
        ("aliases", "old_name"),
        ("aliases", ("",)),
        ("aliases", 5),
        ("aliases", ("a" * 201,)),
        ("unique", "user_id"),
        ("ordered", rota.Unique()),
        ("process", "thread"),
        ("process", None),
        ("history", "none"),
        ("history", None),
        ("on_lost", "forget"),
        ("on_expired", "cancel"),
        ("on_expired", None),
    ],
)
def test_an_option_out_of_range_is_refused_by_the_names_of_job_type_and_option(
    option: str, value: object
) -> None:
    job: Callable[..., Any] = rota.Jobs().job

    with pytest.raises(rota.errors.DeclarationError, match=option) as refused:
        job("send_mail", **{option: value})

    assert "'send_mail'" in str(refused.value)


@rule("M12", "M51", "M60")
@pytest.mark.parametrize(
    ("group", "values", "why"),
    [
        (rota.Unique, {"key": "user_id"}, "the key of unique must be a function"),
        (rota.Unique, {"on_duplicate": "ignore"}, "on_duplicate must be 'keep' or"),
        (rota.Unique, {"scope": "once"}, "scope must be 'ttl'"),
        (rota.Unique, {"ttl": 90}, "ttl must be a timedelta or a string"),
        (rota.Unique, {"ttl": "-1d"}, "ttl must not be negative"),
        (rota.Unique, {"ttl": "1d", "scope": "pending"}, 'ttl needs scope="ttl"'),
        (rota.Ordered, {"key": "invoice"}, "the key of ordered must be a function"),
        (rota.Ordered, {"capacity": 0}, "capacity must be a whole number from 1 to 1,000"),
        (rota.Ordered, {"capacity": 1_001}, "capacity must be a whole number from 1 to 1,000"),
        (rota.Ordered, {"capacity": None}, "capacity must be a whole number"),
        (rota.Ordered, {"while_retrying": "keep"}, "while_retrying must be 'hold' or 'release'"),
        (rota.Ordered, {"after_death": "stop"}, "after_death must be 'continue' or 'halt'"),
        (rota.Process, {"max_memory": "1MiB"}, "max_memory must be at least 16 MiB"),
        (rota.Process, {"recycle_after": 0}, "recycle_after must be a whole number from 1"),
        (rota.Chunk, {"jobs_max": 0}, "chunk must be a whole number from 1 to 10,000"),
        (rota.Chunk, {"jobs_max": 10, "wait": "11s"}, "wait must be at most 10 s"),
    ],
)
def test_a_group_of_options_refuses_a_value_out_of_range(
    group: Callable[..., Any], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(rota.UsageError, match=re.escape(why)):
        group(**values)


@pytest.mark.parametrize(
    "upgrade", [{1: upgraded}, {1: upgraded, 3: upgraded}, {1: upgraded, 2: "no function"}]
)
@rule("M12")
def test_a_version_needs_a_function_for_each_older_one(upgrade: dict[int, Any]) -> None:
    with pytest.raises(rota.errors.DeclarationError, match=r"'send_mail'.*upgrade"):
        rota.Jobs().job("send_mail", version=3, upgrade=upgrade)


@pytest.mark.parametrize("name", ["", "a" * 201, "two\nlines", 5])
def test_a_name_that_cannot_be_stored_is_refused(name: Any) -> None:
    with pytest.raises(rota.errors.DeclarationError, match="name"):
        rota.Jobs().job(name)


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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delay", "in Rota: .enqueue(…)"),
        ("apply_async", 'in Rota: .using(delay="1m", priority=5).enqueue(…)'),
        ("defer", "in Rota: .enqueue(…)"),
        ("send", "in Rota: .enqueue(…)"),
        ("s", "in Rota: .new(…)"),
        ("unheard_of", "has no attribute 'unheard_of'"),
    ],
)
def test_what_other_libraries_call_it_is_answered_with_what_it_is_called_here(
    name: str, hint: str
) -> None:
    send_mail: Any = rota.Jobs().job("send_mail")(lambda user: None)
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(send_mail, name)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("key", "unique"),
        ("queueing_lock", "unique"),
        ("bind", "takes_context"),
        ("retries", "max_attempts"),
        ("concurrency", "max_running"),
        ("prio", "priority"),
        ("soft_time_limit", "timeout"),
        ("retry_jitter", "retry"),
        ("default_retry_delay", "retry"),
    ],
)
def test_an_option_of_another_name_is_answered_with_the_one_that_is_meant(
    given: str, meant: str
) -> None:
    job: Any = rota.Jobs().job
    with pytest.raises(rota.errors.DeclarationError, match=rf"did you mean {meant}\?"):
        job("send_mail", **{given: 3})
    send_mail: Any = job("send_mail")(lambda user: None)
    with pytest.raises(rota.UsageError, match=r"did you mean delay\?"):
        send_mail.using(countdown=3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("max_retries", "It counts the first run too"),
        ("autoretry_for", "errors are retried already"),
        ("acks_late", "runs again already"),
        ("ignore_result", 'history="failures"'),
        ("base", "no task classes"),
        ("countdown", r"it is of one job: \.using\(delay=…\)"),
        ("meta", r"it is of one job: \.using\(meta=…\)"),
    ],
)
def test_a_name_of_another_library_is_explained_where_no_option_is_the_same(
    given: str, says: str
) -> None:
    job: Any = rota.Jobs().job
    with pytest.raises(rota.errors.DeclarationError, match=says):
        job("send_mail", **{given: 3})


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (rota.App("postgresql://"), "task send_task AsyncResult conf control add_periodic_task"),
        (rota, "chain group chord shared_task AsyncResult"),
        (rota.Enqueued(1, True, "queued"), "get ready result revoke"),
    ],
    ids=["App", "rota", "Enqueued"],
)
def test_an_attribute_of_another_library_is_answered_with_what_there_is_here(
    owner: Any, names: str
) -> None:
    for name in names.split():
        with pytest.raises(AttributeError, match=rf"'{name}'; in Rota: "):
            getattr(owner, name)
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        _ = owner.other


def test_an_option_among_the_arguments_is_answered_with_where_it_goes() -> None:
    add: Any = rota.Jobs().job("add")(lambda a: None)
    for given, option in (("countdown", "delay"), ("delay", "delay"), ("priority", "priority")):
        hint = rf"no such argument; it takes a; .*: \.using\({option}=…\)\.enqueue\(…\)"
        with pytest.raises(rota.PayloadError, match=hint):
            add.new(1, **{given: 10})
    method: Any = rota.Jobs().job("method")(lambda self, a: None)
    with pytest.raises(rota.PayloadError, match="'a': missing; self counts as an argument"):
        method.new(1)


@pytest.mark.parametrize("given", [10, 1.5, "10s", timedelta(seconds=3)])
def test_a_retry_takes_no_duration_for_its_reason(given: Any) -> None:
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


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (star_args, r"parameter 'args': a handler cannot take \*args"),
        (star_kwargs, r"parameter 'kwargs': a handler cannot take \*\*kwargs"),
        (positional_only, "parameter 'a'.*positional-only"),
        (generator, "must be a plain or an async function"),
        (async_generator, "must be a plain or an async function"),
        (Callables(), "must be a plain or an async function"),
        (Callables, "must be a plain or an async function"),
        ("send_mail", "must be a plain or an async function"),
    ],
)
def test_a_handler_that_cannot_be_called_with_a_payload_is_refused(handler: Any, why: str) -> None:
    jobs = rota.Jobs()

    with pytest.raises(rota.errors.DeclarationError, match=f"job type 'send_mail'.*{why}"):
        jobs.job("send_mail")(handler)

    assert jobs.types == {}


def test_takes_context_needs_a_first_parameter_for_it() -> None:
    declare = rota.Jobs().job("send_mail", takes_context=True)
    with pytest.raises(
        rota.errors.DeclarationError,
        match=r"'send_mail'.*takes_context=True needs a first, positional parameter",
    ):
        declare(lambda: None)  # type: ignore[arg-type, misc]


def test_a_context_parameter_without_takes_context_is_pointed_out() -> None:
    def handler(ctx: rota.Context) -> None: ...

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
def test_a_module_that_is_reloaded_declares_its_job_types_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edited_jobs.py"
    file.write_text("import rota\njobs = globals().get('jobs') or rota.Jobs()\n" + CELL_OF_JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("edited_jobs")
    file.write_text(f"# a line more\n{file.read_text()}")
    importlib.invalidate_caches()
    jobs = importlib.reload(module).jobs
    assert jobs.types["greet"] is module.greet


@rule("M12")
@pytest.mark.parametrize("source", [CELL_OF_JOBS * 2, FACTORY])
def test_two_functions_of_one_name_in_one_file_are_two_declarations(source: str) -> None:
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
    rota.App(jobs=[jobs])

    with pytest.raises(rota.errors.DeclarationError, match="belongs to another App already"):
        rota.App(jobs=[jobs])


def test_jobs_without_an_app_say_so_when_enqueued() -> None:
    jobs = rota.Jobs()

    @jobs.job("send_mail")
    def send_mail(user_id: int) -> None: ...

    with pytest.raises(rota.UsageError, match=r"belong to no App yet: create rota\.App"):
        send_mail.enqueue(1)


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
