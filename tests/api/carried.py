"""Handlers in processes of their own with contexts around them: another process imports both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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


@contextmanager
def inner(ctx: rota.Context) -> Iterator[None]:
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


waiting = rota.Jobs()


@waiting.job("waits", process=True)
async def waits() -> tuple[str, ...]:
    """Return what the contexts said."""
    return said.get()
