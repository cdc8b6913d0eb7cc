"""Parts of a worker without the worker around them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import rota
from rota.declare.context import Context
from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.executor import Executor
from rota.worker.processes.process_runner import ProcessRunner
from rota.worker.runners import Runners
from rota.worker.starter import Starter
from tests.worker.hand import make_spec


class Others:
    """Stands for the parts that are not there: it keeps what they are told."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[Attempt] = asyncio.Queue()
        self.said: list[str] = []
        self.counts: Counter[str] = Counter()
        self.workers = 0
        self.due_at = math.inf
        self.has_uncounted = False
        self.waiting = self.released = self.unwritten = 0
        self.failures: list[Exception] = []
        self.away_since: float | None = None

    def take(self, ended: Sequence[Attempt]) -> None:
        """Of the finisher: attempts ended."""
        for attempt in ended:
            self.ended.put_nowait(attempt)

    def find_question(self, now: float, *, for_others: bool) -> None:
        """Of the asker: nothing is to be asked."""

    def find_refusals(self) -> str | None:
        """Of the health: nothing is refused."""
        return None

    def wake(self) -> None:
        """Of the claimer."""

    def wake_in(self, pause_s: float) -> None:
        """Of the claimer."""

    def wake_for(self, queue: str) -> None:
        """Of the claimer."""

    def note_answer(self) -> None:
        """Of the worker's health."""

    def note_progress(self, context: Context) -> None:
        """Of the lease keeper."""
        self.said.append(context._encode_progress())


def lone_executor(
    jobs: rota.Jobs | None = None,
    *,
    queue: str = "default",
    slots: int = 1,
    clock: Clock = SYSTEM_CLOCK,
    buffer_s: float = 60.0,
) -> tuple[Executor, Others]:
    """An executor that runs the jobs that are given to it; and what hears of their outcomes. Its
    starter asks the tests' database nothing."""
    spec = make_spec(jobs or rota.Jobs(), queues={queue: slots}, buffer_s=buffer_s, urgent_slots=0)
    others = Others()
    stands: Any = others
    bus = Bus()

    def make_context(attempt: Attempt) -> Context:
        return Context(attempt.job, spec.name, None, others.note_progress)

    executor = Executor(spec, bus, clock, {}, stands, make_context, others.failures.append)
    processes = ProcessRunner(executor.handle_end, spec, Database(""))
    executor.runners = Runners(spec.name, (), clock, executor.handle_end, processes)
    link = StoreLink(Database(""), "begin")
    executor.starter = Starter(bus, clock, link, executor.begin, executor.handle_end)
    executor.wake_claimer = others.wake
    return executor, others


def give(executor: Executor, *attempts: Attempt) -> None:
    """Give an executor claimed jobs, as the claimer does."""
    executor.expect(attempts)
    executor.take(attempts)
