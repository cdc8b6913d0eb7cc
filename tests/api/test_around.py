"""What an application puts around its attempts and its enqueues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.api import carried
from tests.api.rows import Rows
from tests.support.rules import rule

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
Said = list[str]


def _saying(said: Said, name: str) -> Callable[[rota.Context], Any]:
    @contextmanager
    def around(ctx: rota.Context) -> Iterator[None]:
        said.append(f"{name} enters")
        try:
            yield
        except BaseException as error:
            said.append(f"{name} sees {type(error).__name__}")
            raise
        else:
            said.append(f"{name} leaves")

    return around


def _saying_async(said: Said, name: str) -> Callable[[rota.Context], Any]:
    @asynccontextmanager
    async def around(ctx: rota.Context) -> AsyncIterator[None]:
        with _saying(said, name)(ctx):
            await asyncio.sleep(0)
            try:
                yield
            finally:
                await asyncio.sleep(0)
                said.append(f"{name} awaited")

    return around


# Each attempt


def test_the_first_is_the_outermost_and_the_handler_sees_what_they_set(app: rota.App) -> None:
    said: Said = []
    app.middleware(_saying(said, "first"))

    @app.middleware
    @contextmanager
    def second(ctx: rota.Context) -> Iterator[None]:
        assert rota.context() is ctx
        before = tenant.set(ctx.job.meta["tenant"])
        where.append(threading.current_thread())
        yield
        tenant.reset(before)
        said.append("second leaves")

    @app.job("plain")
    def plain() -> str:
        where.append(threading.current_thread())
        return tenant.get()

    @app.job("waits")
    async def waits() -> str:
        where.append(threading.current_thread())
        return tenant.get()

    for job_type in (plain, waits):
        said.clear()
        where: list[threading.Thread] = []
        job = job_type.using(meta={"tenant": "acme"}).enqueue().id
        app.drain()
        assert app.get(job).result == "acme"
        assert said == ["first enters", "second leaves", "first leaves"]
        assert where[0] is where[1]
    assert tenant.get() == "nobody"


def _fail(here: str, ctx: rota.Context) -> None:
    if here in ctx.job.job_type:
        raise LookupError(f"{ctx.job.job_type} is broken")


@contextmanager
def _breaking(ctx: rota.Context) -> Iterator[None]:
    _fail("enter", ctx)
    yield
    _fail("leave", ctx)


@asynccontextmanager
async def _breaking_async(ctx: rota.Context) -> AsyncIterator[None]:
    with _breaking(ctx):
        yield


@rule("M41", "M43")
def test_one_that_fails_is_a_failed_attempt_with_its_own_error(app: rota.App, rows: Rows) -> None:
    said: dict[str, Said] = {}

    @app.middleware
    def outer(ctx: rota.Context) -> Any:
        return _saying(said.setdefault(ctx.job.job_type, []), "outer")(ctx)

    @app.middleware
    def broken(ctx: rota.Context) -> Any:
        return (_breaking_async if "async" in ctx.job.job_type else _breaking)(ctx)

    def work() -> None:
        said[rota.context().job.job_type].append("handler")

    async def awork() -> None:
        work()

    handlers: dict[str, Any] = {
        "plain enter": work, "plain leave": work, "async enter": awork, "async leave": awork,
    }  # fmt: skip
    jobs = {
        name: app.job(name, fatal_on=(LookupError,))(handler).enqueue().id
        for name, handler in handlers.items()
    }
    app.drain()
    for name, job in jobs.items():
        [attempt] = rows.attempts(job)
        assert rows.job(job)["status"] == "dead", name
        assert (attempt["error_type"], attempt["message"]) == ("LookupError", f"{name} is broken")
        stack = attempt["stack"]
        assert "in _fail\n" in stack and "rota/worker" not in stack.split("\n")[1], name
        ran = ["handler"] if "leave" in name else []
        assert said[name] == ["outer enters", *ran, "outer sees LookupError"], name


@rule("M2")
@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_swallows_an_error_does_not_make_the_job_succeed(
    app: rota.App, rows: Rows, is_async: bool
) -> None:
    said: Said = []
    app.middleware(_saying(said, "outer"))

    @contextmanager
    def swallow(ctx: rota.Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            said.append(f"logged {error}")

    @asynccontextmanager
    async def aswallow(ctx: rota.Context) -> AsyncIterator[None]:
        with swallow(ctx):
            yield

    app.middleware(aswallow if is_async else swallow)

    def work() -> None:
        raise ValueError("no such invoice")

    async def awork() -> None:
        work()

    app.job("work")(awork if is_async else work)
    job = app.types["work"].enqueue().id
    app.drain()
    assert rows.job(job)["status"] == "failed"
    assert rows.attempts(job)[0]["message"] == "no such invoice"
    assert said == ["outer enters", "logged no such invoice", "outer sees ValueError"]


def test_one_may_turn_an_error_into_an_outcome_and_lets_outcomes_pass(
    app: rota.App, rows: Rows
) -> None:
    said: Said = []
    app.middleware(_saying(said, "it"))

    @app.middleware
    @contextmanager
    def quota(ctx: rota.Context) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            raise rota.Snooze("1h", "the partner is closed") from error

    @app.job("work")
    def work() -> None:
        raise ConnectionError

    @app.job("raises")
    def raises() -> None:
        raise rota.Dead("no use")

    @app.job("returns")
    def returns() -> rota.Dead:
        return rota.Dead("no use")

    @app.job("add")
    def add(a: int) -> None: ...

    jobs = [job_type.enqueue().id for job_type in (work, raises, returns)]
    misfit = rows.insert("add", '{"a": "x"}')
    app.drain(concurrency=1)
    assert (rows.job(jobs[0])["status"], rows.job(jobs[0])["attempts"]) == ("queued", 0)
    assert [rows.job(job)["status"] for job in (*jobs[1:], misfit)] == ["dead"] * 3
    ends = ["it sees Snooze", "it sees Dead", "it leaves"]
    assert said == [line for end in ends for line in ("it enters", end)], "none for the misfit"


@rule("M35")
async def test_a_handler_that_is_stopped_at_its_timeout_leaves_its_async_contexts(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    said: Said = []
    app = rota.App(database, middleware=[_saying(said, "plain"), _saying_async(said, "async")])

    @app.job("hangs", timeout="0.2s")
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = (await hangs.aenqueue()).id
    await app.adrain()
    assert (await app.aget(job)).error_type == "rota.errors.AttemptTimeout"
    assert said == [
        "plain enters", "async enters",
        "async awaited", "async sees CancelledError", "plain sees CancelledError",
    ]  # fmt: skip
    await app.aclose()


# What cannot go around


@asynccontextmanager
async def _session(ctx: rota.Context) -> AsyncIterator[None]:
    yield


_made = _session(None)  # type: ignore[arg-type]


async def _coroutine(ctx: Any) -> None: ...


def _generator(ctx: Any) -> Iterator[None]:
    yield


async def _async_generator(ctx: Any) -> AsyncIterator[None]:
    yield


def test_what_cannot_go_around_is_refused_when_it_is_declared() -> None:
    for around, reason in (
        (_generator, "_generator needs @contextlib.contextmanager above it"),
        (_async_generator, "_async_generator needs @contextlib.asynccontextmanager above it"),
        (_coroutine, "_coroutine returns a coroutine: give it one `yield`"),
        (_made, "must be a function that returns a context manager"),
        (42, "must be a function that returns a context manager, not 42"),
    ):
        wrong: Any = around
        with pytest.raises(rota.errors.DeclarationError, match=reason):
            rota.App("postgresql:///x", middleware=wrong)
        with pytest.raises(rota.errors.DeclarationError, match=reason):
            rota.App("postgresql:///x", enqueue_middleware=[wrong])
        with pytest.raises(rota.errors.DeclarationError, match=reason):
            rota.App("postgresql:///x").middleware(wrong)
    with pytest.raises(rota.errors.DeclarationError, match="is async, and plain code enqueues too"):
        rota.App("postgresql:///x", enqueue_middleware=_session)  # type: ignore[arg-type]


def test_one_that_cannot_go_around_a_handler_is_refused_before_a_job_is_claimed(
    database: str, rows: Rows
) -> None:
    app = rota.App(database, middleware=_session)
    job = app.job("plain")(lambda: None).enqueue().id
    other = rota.App(database, jobs=[carried.jobs], middleware=_saying([], "local"))
    try:
        for refused, reason in (
            (app, "_session: its context manager is async"),
            (other, "middleware that another process can import"),
        ):
            with pytest.raises(rota.errors.DeclarationError, match=reason):
                refused.drain()
            refused.close()
    finally:
        carried.jobs._owner = None
    assert rows.job(job)["claims"] == 0


def test_one_that_returns_something_else_fails_the_attempt(app: rota.App, rows: Rows) -> None:
    made: dict[str, Callable[[Any], Any]] = {
        "session": _session,
        "nothing": lambda ctx: None,
        "coroutine": _coroutine,
    }
    reasons = {
        "session": "its context manager is async, and the handler of 'session'",
        "nothing": "it must return a context manager, not None",
        "coroutine": "it must return a context manager, not <coroutine",
    }

    @app.middleware
    def make(ctx: rota.Context) -> Any:
        return made[ctx.job.job_type](ctx)

    jobs = {name: app.job(name)(lambda: None).enqueue().id for name in made}
    app.drain()
    for name, job in jobs.items():
        assert rows.job(job)["status"] == "failed"
        assert reasons[name] in rows.job(job)["last_error"]


# In processes of their own


@pytest.mark.nightly
@pytest.mark.system
def test_they_are_entered_in_the_process_of_the_handler(database: str) -> None:
    app = rota.App(database, jobs=[carried.jobs], middleware=[carried.outer, carried.inner])
    plain = carried.plain.using(meta={"tenant": "acme"})
    waits = carried.waits.using(meta={"tenant": "acme"})
    try:
        fine, broken = plain.enqueue().id, plain.enqueue(breaks=True).id
        awaited = waits.enqueue().id
        app.drain()
    finally:
        carried.jobs._owner = None
    assert app.get(fine).result == ["outer for acme", "inner"]
    assert app.get(awaited).result == ["outer for acme", "awaited"]
    assert app.get(broken).status is rota.Status.DEAD
    assert app.get(broken).last_error == "the inner one cannot be left"
    app.close()


# Each enqueue


@contextmanager
def _carry(jobs: Sequence[rota.records.NewJob]) -> Iterator[Mapping[str, Any]]:
    yield {"request": "r-1", "tenant": tenant.get()}


def _declare(app: rota.App) -> rota.JobType[[], [], None]:
    @app.job("work")
    def work() -> None: ...

    return work


@rule("M10")
async def test_meta_is_carried_from_the_caller_to_each_job(database: str) -> None:
    app = rota.App(database, enqueue_middleware=_carry)
    work = _declare(app)
    before = tenant.set("acme")
    try:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            ids = [(await work.using(connection=connection).aenqueue()).id]
            ids += [job.id for job in await work.using(connection=connection).aenqueue_many([{}])]
        ids.append((await asyncio.to_thread(work.enqueue)).id)
        ids += [job.id for job in await app.aenqueue_many([work.new(), work.new()])]
    finally:
        tenant.reset(before)
    for id_ in ids:
        assert (await app.aget(id_)).meta == {"request": "r-1", "tenant": "acme"}
    await app.aclose()


def test_a_bulk_enters_each_once_and_the_inner_ones_meta_counts_before_an_outer_ones(
    database: str,
) -> None:
    counts = []
    app = rota.App(database, enqueue_middleware=[_carry])

    @app.enqueue_middleware
    @contextmanager
    def inner(jobs: Sequence[rota.records.NewJob]) -> Iterator[Mapping[str, Any]]:
        counts.append([job.job_type.name for job in jobs])
        yield {"tenant": "inner", "also": len(jobs)}

    work = _declare(app)
    job = work.using(meta={"also": "own"}).enqueue().id
    assert app.get(job).meta == {"request": "r-1", "tenant": "inner", "also": "own"}
    app.enqueue_many([work.new(), work.new()])
    app.enqueue_many([])
    assert counts == [["work"], ["work", "work"]]
    app.close()


@rule("M2")
def test_one_that_swallows_the_error_of_an_enqueue_hides_it_from_nobody(app: rota.App) -> None:
    seen = []

    class Swallow:
        def __init__(self, jobs: Sequence[rota.records.NewJob]) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(
            self, kind: type[BaseException] | None, error: object, stack: TracebackType | None
        ) -> bool:
            seen.append(kind)
            return True

    app.enqueue_middleware(Swallow)
    work = _declare(app).using(key="once", on_duplicate="raise")
    work.enqueue()
    with pytest.raises(rota.KeyTaken):
        work.enqueue()
    with pytest.raises(rota.KeyTaken):
        app.enqueue_many([work.new()])
    assert seen == [None, rota.KeyTaken, rota.KeyTaken]


def test_one_that_fails_or_gives_what_is_no_meta_inserts_nothing(app: rota.App) -> None:
    given: Any = [("a", 1)]

    @app.enqueue_middleware
    @contextmanager
    def odd(jobs: Sequence[rota.records.NewJob]) -> Iterator[Any]:
        yield given

    work = _declare(app)
    with pytest.raises(rota.UsageError, match=r"odd: it must yield a mapping.*not \[\('a', 1\)\]"):
        work.enqueue()
    given = {"a": object()}
    with pytest.raises(rota.UsageError, match="meta"):
        work.enqueue()
    assert app.find() == []


@rule("M1")
def test_one_that_fails_when_it_is_left_raises_and_what_was_inserted_stays(
    database: str, app: rota.App
) -> None:
    @app.enqueue_middleware
    @contextmanager
    def broken(jobs: Sequence[rota.records.NewJob]) -> Iterator[None]:
        yield
        raise OSError("the tracer is away")

    work = _declare(app)
    with pytest.raises(OSError, match="the tracer is away") as caught:
        work.enqueue()
    assert caught.value.__notes__ == ["the jobs of this enqueue were inserted before"]
    assert len(app.find()) == 1
    with psycopg.connect(database) as connection:
        with pytest.raises(OSError) as caught:
            work.using(connection=connection).enqueue()
        connection.rollback()
    assert len(app.find()) == 1, "it was of the caller's transaction"
