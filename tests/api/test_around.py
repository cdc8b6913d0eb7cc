"""What an application puts around its attempts and its enqueues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
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


def test_a_list_of_sync_and_async_ones_goes_around_an_async_handler(database: str) -> None:
    said: Said = []
    app = rota.App(database, middleware=[_saying(said, "plain"), _saying_async(said, "async")])

    @app.job("waits")
    async def waits() -> None:
        said.append("handler")

    waits.enqueue()
    app.drain()
    assert said == [
        "plain enters",
        "async enters",
        "handler",
        "async awaited",
        "async leaves",
        "plain leaves",
    ]


class Both:
    """A context manager for plain and for async handlers."""

    said: Said

    def __init__(self, ctx: rota.Context) -> None:
        self.job_type = ctx.job.job_type

    def __enter__(self) -> None:
        self.said.append(f"{self.job_type} plain")

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> None:
        self.said.append(f"{self.job_type} async")

    async def __aexit__(self, *_: object) -> None: ...


def test_a_class_with_both_halves_goes_around_both_kinds_of_handlers(database: str) -> None:
    Both.said = []
    app = rota.App(database, middleware=Both)

    @app.job("plain")
    def plain() -> None: ...

    @app.job("waits")
    async def waits() -> None: ...

    app.enqueue_many([plain.new(), waits.new()])
    app.drain()
    assert sorted(Both.said) == ["plain plain", "waits async"]


@rule("M41", "M43")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("where", ["enter", "leave"])
def test_one_that_fails_is_a_failed_attempt_with_its_own_error(
    app: rota.App, rows: Rows, where: str, is_async: bool
) -> None:
    said: Said = []
    app.middleware(_saying(said, "outer"))

    def fail(here: str) -> None:
        if here == where:
            raise LookupError(f"{where} is broken")

    if is_async:

        @app.middleware
        @asynccontextmanager
        async def broken(ctx: rota.Context) -> AsyncIterator[None]:
            fail("enter")
            yield
            fail("leave")

    else:

        @app.middleware
        @contextmanager
        def broken_plain(ctx: rota.Context) -> Iterator[None]:
            fail("enter")
            yield
            fail("leave")

    if is_async:

        @app.job("work", fatal_on=(LookupError,))
        async def work() -> None:
            said.append("handler")

    else:

        @app.job("work", fatal_on=(LookupError,))
        def plain_work() -> None:
            said.append("handler")

    job = app.types["work"].enqueue().id
    app.drain()
    [attempt] = rows.attempts(job)
    assert rows.job(job)["status"] == "dead"
    assert (attempt["error_type"], attempt["message"]) == ("LookupError", f"{where} is broken")
    assert "in fail\n" in attempt["stack"] and "rota/worker" not in attempt["stack"].split("\n")[1]
    assert said == [
        "outer enters",
        *(["handler"] if where == "leave" else []),
        "outer sees LookupError",
    ]


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


def test_one_may_turn_an_error_into_an_outcome(app: rota.App, rows: Rows) -> None:
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

    job = work.enqueue().id
    app.drain()
    assert (rows.job(job)["status"], rows.job(job)["attempts"]) == ("queued", 0)


def test_an_outcome_that_is_raised_passes_through_and_one_that_is_returned_is_a_return(
    app: rota.App, rows: Rows
) -> None:
    said: Said = []
    app.middleware(_saying(said, "it"))

    @app.job("raises")
    def raises() -> None:
        raise rota.Dead("no use")

    @app.job("returns")
    def returns() -> rota.Dead:
        return rota.Dead("no use")

    jobs = [raises.enqueue().id, returns.enqueue().id]
    app.drain(concurrency=1)
    assert [rows.job(job)["status"] for job in jobs] == ["dead", "dead"]
    assert said == ["it enters", "it sees Dead", "it enters", "it leaves"]


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
    assert said[2:] == ["async awaited", "async sees CancelledError", "plain sees CancelledError"]
    await app.aclose()


async def test_a_cancelled_job_leaves_its_contexts_even_while_one_is_entered(
    database: str,
) -> None:
    said: Said = []
    entered = asyncio.Event()
    app = rota.App(database, lease="2s", middleware=_saying(said, "outer"))

    @app.middleware
    @asynccontextmanager
    async def waits_for_a_pool(ctx: rota.Context) -> AsyncIterator[None]:
        entered.set()
        await asyncio.Event().wait()
        yield

    @app.job("work")
    async def work() -> None:
        raise AssertionError("it must not run")

    job = (await work.aenqueue()).id
    draining = asyncio.create_task(app.adrain())
    await asyncio.wait_for(entered.wait(), 30)
    await app.acancel(job, why="not needed")
    await asyncio.wait_for(draining, 30)
    assert (await app.aget(job)).status is rota.Status.CANCELLED
    assert said == ["outer enters", "outer sees CancelledError"]
    await app.aclose()


def test_nothing_is_entered_for_a_payload_that_does_not_fit(app: rota.App, rows: Rows) -> None:
    said: Said = []
    app.middleware(_saying(said, "it"))

    @app.job("add")
    def add(a: int) -> None: ...

    job = rows.insert("add", '{"a": "x"}')
    app.drain()
    assert rows.job(job)["status"] == "dead" and said == []


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


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        (_generator, "_generator needs @contextlib.contextmanager above it"),
        (_async_generator, "_async_generator needs @contextlib.asynccontextmanager above it"),
        (_coroutine, "_coroutine returns a coroutine: give it one `yield`"),
        (nullcontext(), "must be a function that returns a context manager"),
        (_made, "must be a function that returns a context manager"),
        (42, "must be a function that returns a context manager, not 42"),
    ],
)
def test_what_cannot_go_around_is_refused_when_it_is_declared(around: Any, reason: str) -> None:
    with pytest.raises(rota.errors.DeclarationError, match=reason):
        rota.App("postgresql:///x", middleware=around)
    with pytest.raises(rota.errors.DeclarationError, match=reason):
        rota.App("postgresql:///x", enqueue_middleware=[around])
    app = rota.App("postgresql:///x")
    with pytest.raises(rota.errors.DeclarationError, match=reason):
        app.middleware(around)


def test_an_async_one_around_a_plain_handler_is_refused_before_a_job_is_claimed(
    app: rota.App, rows: Rows
) -> None:
    app.middleware(_session)

    @app.job("plain")
    def plain() -> None: ...

    job = plain.enqueue().id
    with pytest.raises(
        rota.errors.DeclarationError, match="_session: its context manager is async"
    ):
        app.drain()
    assert rows.job(job)["claims"] == 0


def _make_session(ctx: rota.Context) -> Any:
    return _session(ctx)


def _make_coroutine(ctx: rota.Context) -> Any:
    return _coroutine(ctx)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_make_session, "its context manager is async, and the handler of 'plain'"),
        (lambda ctx: None, "it must return a context manager, not None"),
        (_make_coroutine, "it must return a context manager, not <coroutine"),
    ],
)
def test_one_that_returns_something_else_fails_the_attempt(
    app: rota.App, rows: Rows, make: Any, reason: str
) -> None:
    app.middleware(make)

    @app.job("plain")
    def plain() -> None: ...

    job = plain.enqueue().id
    app.drain()
    assert rows.job(job)["status"] == "failed"
    assert reason in rows.job(job)["last_error"]


# In processes of their own


@pytest.mark.system
def test_they_are_entered_in_the_process_of_the_handler(database: str, rows: Rows) -> None:
    app = rota.App(database, jobs=[carried.jobs], middleware=[carried.outer, carried.inner])
    try:
        fine = carried.plain.using(meta={"tenant": "acme"}).enqueue().id
        broken = carried.plain.using(meta={"tenant": "acme"}).enqueue(breaks=True).id
        app.drain()
    finally:
        carried.jobs._owner = None
    assert app.get(fine).result == ["outer for acme", "inner"]
    assert app.get(broken).status is rota.Status.DEAD
    assert app.get(broken).last_error == "the inner one cannot be left"
    app.close()


@pytest.mark.system
def test_async_ones_are_entered_in_the_loop_of_a_process(database: str) -> None:
    app = rota.App(database, jobs=[carried.waiting], middleware=[carried.outer, carried.awaited])
    try:
        job = carried.waits.using(meta={"tenant": "acme"}).enqueue().id
        app.drain()
    finally:
        carried.waiting._owner = None
    assert app.get(job).result == ["outer for acme", "awaited"]
    app.close()


def test_one_that_another_process_cannot_import_is_refused_before_a_job_is_claimed(
    database: str,
) -> None:
    app = rota.App(database, jobs=[carried.jobs], middleware=_saying([], "local"))
    try:
        with pytest.raises(
            rota.errors.DeclarationError, match="middleware that another process can import"
        ):
            app.drain()
    finally:
        carried.jobs._owner = None
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
            ids += [one.id for one in await work.using(connection=connection).aenqueue_many([{}])]
        ids.append((await asyncio.to_thread(work.enqueue)).id)
        ids += [one.id for one in await app.aenqueue_many([work.new(), work.new()])]
    finally:
        tenant.reset(before)
    for id_ in ids:
        assert (await app.aget(id_)).meta == {"request": "r-1", "tenant": "acme"}
    await app.aclose()


def test_the_meta_of_a_job_counts_before_an_inner_ones_and_that_before_an_outer_ones(
    database: str,
) -> None:
    app = rota.App(database, enqueue_middleware=[_carry])

    @app.enqueue_middleware
    @contextmanager
    def inner(jobs: Sequence[rota.records.NewJob]) -> Iterator[Mapping[str, Any]]:
        yield {"tenant": "inner", "also": len(jobs)}

    job = _declare(app).using(meta={"also": "own"}).enqueue().id
    assert app.get(job).meta == {"request": "r-1", "tenant": "inner", "also": "own"}
    app.close()


def test_a_bulk_enters_it_once_and_an_empty_one_not_at_all(app: rota.App) -> None:
    counts = []

    @app.enqueue_middleware
    @contextmanager
    def span(jobs: Sequence[rota.records.NewJob]) -> Iterator[None]:
        counts.append([job.job_type.name for job in jobs])
        yield

    work = _declare(app)
    app.enqueue_many([work.new(), work.new()])
    app.enqueue_many([])
    assert counts == [["work", "work"]]
    assert app.find()[0].meta is None


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


def test_an_async_one_around_enqueues_is_refused() -> None:
    with pytest.raises(rota.errors.DeclarationError, match="is async, and plain code enqueues too"):
        rota.App("postgresql:///x", enqueue_middleware=_session)  # type: ignore[arg-type]
