"""What a running handler can ask for: its context, in tasks and in threads, and what the App's
lifespan made.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import rota
from rota.testing import make_context
from tests.api.rows import Rows
from tests.support.rules import rule
from tests.support.wait import eventually


def test_each_handler_has_its_own_context_in_tasks_and_threads_and_nobody_else_has_one(
    app: rota.App,
) -> None:
    all_run = asyncio.Barrier(2)
    all_run_in_threads = threading.Barrier(2, timeout=30)

    @app.job("async")
    async def on_a_loop() -> list[int]:
        await all_run.wait()
        return [rota.context().job.id, await asyncio.to_thread(lambda: rota.context().job.id)]

    @app.job("plain")
    def in_a_thread() -> list[Any]:
        all_run_in_threads.wait()
        return [rota.context().job.id, threading.current_thread() is threading.main_thread()]

    loops = [on_a_loop.enqueue().id for _ in range(2)]
    threads = [in_a_thread.enqueue().id for _ in range(2)]
    app.drain()
    assert [app.get(id_).result for id_ in loops] == [[id_, id_] for id_ in loops]
    assert [app.get(id_).result for id_ in threads] == [[id_, False] for id_ in threads]
    with pytest.raises(rota.UsageError, match="outside a running job"):
        rota.context()


@dataclass
class Number:
    """An item of a list."""

    number: int


def test_a_context_knows_the_app_of_its_job(app: rota.App) -> None:
    seen: list[rota.App] = []

    @app.job("plain", takes_context=True)
    def plain(ctx: rota.Context) -> None:
        seen.append(ctx.app)

    @app.job("list", chunk=2, takes_context=True)
    def many(ctx: rota.Context, numbers: list[Number]) -> None:
        seen.extend([ctx.app, ctx.items[0].app])

    plain.enqueue()
    many.enqueue(Number(1))
    assert app.drain().succeeded == 2
    assert seen == [app] * 3
    assert make_context(plain).app is app
    with pytest.raises(rota.UsageError, match="no App is known here"):
        _ = make_context().app


# Lifespan


class Lives:
    """Counts how often a lifespan was entered and left, and what it yielded."""

    def __init__(self) -> None:
        self.entered: list[asyncio.AbstractEventLoop] = []
        self.left = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Lives]:
        self.entered.append(asyncio.get_running_loop())
        try:
            yield self
        finally:
            self.left += 1


def test_the_lifespan_is_entered_once_per_worker_on_its_loop_and_left_at_the_end(
    database: str,
) -> None:
    lives = Lives()
    seen: list[tuple[bool, int]] = []
    app = rota.App(database, lifespan=lives)

    @app.job("async", takes_context=True)
    async def coroutine(ctx: rota.Context) -> None:
        assert ctx.state.entered[-1] is asyncio.get_running_loop()
        seen.append((ctx.state is lives, lives.left))

    @app.job("plain")
    def plain() -> None:
        seen.append((rota.context().state is lives, lives.left))

    for _ in range(2):
        coroutine.enqueue()
        plain.enqueue()
    assert app.drain().succeeded == 4
    app.close()

    assert (len(lives.entered), lives.left, seen) == (1, 1, [(True, 0)] * 4)
    app.drain()
    app.close()
    assert (len(lives.entered), lives.left) == (2, 2)


@rule("M2")
def test_a_lifespan_that_fails_starts_no_worker_and_claims_nothing(
    database: str, rows: Rows
) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise OSError("no such provider")
        yield

    app = rota.App(database, lifespan=broken)
    app.job("work")(lambda: None)
    id_ = app.types["work"].enqueue().id

    with pytest.raises(OSError, match="no such provider"):
        app.drain()
    app.close()

    assert (rows.job(id_)["status"], rows.job(id_)["claims"]) == ("queued", 0)


async def _forgot_the_decorator() -> AsyncIterator[None]:
    yield


async def _is_a_coroutine() -> None: ...


@contextmanager
def _is_not_async() -> Iterator[None]:
    yield


@rule("M2")
def test_a_lifespan_that_returns_no_async_context_manager_is_named(database: str) -> None:
    wrong: list[Any] = [_forgot_the_decorator, _is_a_coroutine, _is_not_async, lambda: None]
    for lifespan in wrong:
        app = rota.App(database, lifespan=lifespan)
        app.job("work")(lambda: None)
        with pytest.raises(
            rota.errors.DeclarationError,
            match="lifespan must return an async context manager, as an async function under @",
        ):
            app.drain()
        app.close()
    for made in (asynccontextmanager(_forgot_the_decorator)(), 5):
        with pytest.raises(
            rota.errors.DeclarationError,
            match="lifespan must be a function, which each worker calls, not",
        ):
            rota.App("postgresql://localhost:1/nowhere", lifespan=made)  # type: ignore[arg-type]


def test_progress_that_cannot_be_is_refused(app: rota.App) -> None:
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((-1,), "done must be a number from 0 to 2"),
        ((float("nan"),), "done must be"),
        ((10**400,), "done must be"),
        ((True,), "done must be"),
        (("1",), "done must be"),
        ((1, -2), "total must be"),
        ((1, "2"), "total must be"),
        ((1, 2, 3), "note must be a string"),
    ]

    @app.job("work", max_attempts=1)
    def work(at: int) -> None:
        rota.context().progress(*wrong[at][0])

    ids = [work.enqueue(at).id for at in range(len(wrong))]
    app.drain()
    for id_, (arguments, sentence) in zip(ids, wrong, strict=True):
        job = app.get(id_)
        assert (job.status, job.error_type) == ("dead", "rota.errors.UsageError"), arguments
        assert sentence in (job.last_error or ""), arguments


@rule("M45", "M72")
def test_an_app_shows_the_progress_of_a_job_its_note_fit_to_be_shown(app: rota.App) -> None:
    seen = threading.Event()

    @app.job("work")
    def work() -> None:
        rota.context().progress(40.5, note="page \x00 of password=hunter2\ud800 " + "x" * 300)
        seen.wait(60)

    id_ = work.enqueue().id
    worker = threading.Thread(target=app.drain)
    worker.start()
    try:
        progress = eventually(lambda: app.get(id_).progress)
    finally:
        seen.set()
        worker.join()

    assert progress is not None
    assert (progress.done, progress.total, len(progress.note or "")) == (40.5, None, 200)
    assert (progress.note or "").startswith("page of password=***")
