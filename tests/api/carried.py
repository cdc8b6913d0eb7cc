"""Handlers in processes of their own with contexts around them: another process imports both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar

import rota

jobs = rota.Jobs()
said: ContextVar[tuple[str, ...]] = ContextVar("said", default=())


@contextmanager
def outer(ctx: rota.Context) -> Iterator[None]:
    """Say so, and the tenant of the job."""
    before = said.set((*said.get(), f"outer for {ctx.job.meta['tenant']}"))
    yield
    said.reset(before)


def inner(ctx: rota.Context) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
    """One for an async handler, another for a plain one."""
    return awaited(ctx) if ctx.job.job_type == "waits" else breaking(ctx)


@contextmanager
def breaking(ctx: rota.Context) -> Iterator[None]:
    """Say so; fail where the job asks for it."""
    said.set((*said.get(), "inner"))
    try:
        yield
    finally:
        if ctx.job.payload.get("breaks"):
            raise LookupError("the inner one cannot be left")


@asynccontextmanager
async def awaited(ctx: rota.Context) -> AsyncIterator[None]:
    """Say so."""
    said.set((*said.get(), "awaited"))
    yield


@jobs.job("plain", process=True, fatal_on=(LookupError,))
def plain(breaks: bool = False) -> tuple[str, ...]:
    """Return what the contexts said."""
    return said.get()


@jobs.job("waits", process=True)
async def waits() -> tuple[str, ...]:
    """Return what the contexts said."""
    return said.get()
