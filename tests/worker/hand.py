"""A worker in the test's own loop, so that a test can see its events and set what `App.run` does
not offer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self, TypeVar

import msgspec

import rota
from rota.declare.config import WorkerConfig
from rota.declare.declaration import make_row
from rota.declare.shared import encode_limits
from rota.observe.events import Bus, DatabaseLost, Event, WorkerStarted
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import Service
from rota.store.db import Database
from rota.worker.attempt import Attempt
from rota.worker.claimer import Claimer
from rota.worker.finisher import Finisher
from rota.worker.spec import WorkerSpec
from rota.worker.summary import Summary
from rota.worker.worker import Worker

E = TypeVar("E", bound=Event)
P = TypeVar("P")


def make_spec(
    jobs: rota.Jobs,
    *,
    release: str = "hand-1",
    lease_s: float = 120.0,
    lifespan: Any = None,
    name: str | None = None,
    **config: Any,
) -> WorkerSpec:
    """Return the facts of a worker; `config`: settings of `WorkerConfig`."""
    declaration = msgspec.json.encode(
        [make_row(job_type._declaration, lease_s) for job_type in jobs.types.values()]
    ).decode()
    named: Any = {} if name is None else {"name": name}
    return WorkerSpec(
        types={job_type.name: job_type._declaration for job_type in jobs.types.values()},
        release=release,
        lease_s=lease_s,
        declaration=declaration,
        config=WorkerConfig(**config),
        lifespan=lifespan,
        limits=encode_limits(job_type._declaration for job_type in jobs.types.values()),
        **named,
    )


class Hand:
    """`async with Hand(url, jobs, poll_s=30) as hand:` works within the block; at its end the
    worker is told to stop.

    Settings beyond those of `WorkerConfig`: `lease_s`, of types that name none, `notify` and
    `lifespan`.
    """

    def __init__(
        self,
        url: str,
        jobs: rota.Jobs,
        *,
        lease_s: float = 120.0,
        notify: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        lifespan: Any = None,
        **config: Any,
    ) -> None:
        self.events: list[Event] = []
        self.report: Summary | None = None
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        bus = Bus()
        bus.on(Event, self._hear)
        spec = make_spec(jobs, lease_s=lease_s, lifespan=lifespan, **{"grace_s": 5.0, **config})
        self.worker = Worker(Database(url, notify=notify), spec, bus, clock)
        self.name = self.worker.name
        self._task: asyncio.Task[Summary] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.worker.run())
        await self.heard(WorkerStarted)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        assert self._task is not None
        self.report = await asyncio.wait_for(self._task, 60)

    async def run(self) -> Summary:
        """Work until it ends by itself, as a drain does."""
        return await asyncio.wait_for(self.worker.run(), 60)

    def look(self) -> None:
        """Have the worker claim now, as it does when a slot has got free. From any thread."""
        self._loop.call_soon_threadsafe(Service.wake, self.part(Claimer))

    async def heard(
        self, kind: type[E], count: int = 1, timeout_s: float = 60, *, job: int | None = None
    ) -> E:
        """Wait until so many events of a class have happened, of one job if it is named; return the
        last of them."""

        def found() -> list[E]:
            return [
                event
                for event in self.events
                if isinstance(event, kind) and job in (None, getattr(event, "job", None))
            ]

        await self.until(lambda: len(found()) >= count, timeout_s)
        return found()[count - 1]

    async def lost(self, service: str) -> DatabaseLost:
        """Wait until a service says that it has lost the database; where that hardly answers,
        others may lose it as well. Return the first event."""

        def found() -> list[DatabaseLost]:
            return [
                event
                for event in self.events
                if isinstance(event, DatabaseLost) and event.service == service
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def until(self, holds: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait until something holds; looked at after each event."""
        assert self._task is not None
        async with asyncio.timeout(timeout_s):
            while not holds():
                self._news.clear()
                waiting = asyncio.create_task(self._news.wait())
                await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self._task.done():
                    self._task.result()
                    assert holds(), "the worker ended before"

    def part(self, kind: type[P]) -> P:
        """The worker's part of a class."""
        [part] = [part for part in self.worker.services if isinstance(part, kind)]
        return part

    def is_refused(self, attempt: Attempt) -> bool:
        """Whether the database refused the outcome of an attempt that ended, and still may."""
        return attempt in self.part(Finisher)._refused.cases

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._loop.call_soon_threadsafe(self._news.set)
