"""Parts of a worker without the worker around them."""

from __future__ import annotations

import asyncio
from typing import Any

import rota
from rota.declare.config import WorkerConfig
from rota.declare.context import Context
from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import PauseGate
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.attempt import Attempt
from rota.worker.executor import Executor
from rota.worker.gates.results import ResultReader
from rota.worker.gates.start_record import StartRecorder
from rota.worker.health import Health
from rota.worker.parts import Parts
from rota.worker.processes import Processes
from rota.worker.runners import Runners
from rota.worker.shutdown import Shutdown
from rota.worker.slots import SlotGroup
from rota.worker.spec import WorkerSpec


class Others:
    """Stands for the parts that are not there: it keeps what they are told."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[Attempt] = asyncio.Queue()
        self.said: list[str] = []
        self.counts: dict[str, int] = {}
        self.workers = 0
        self.has_uncounted = False
        self.waiting = self.released = self.unwritten = 0

    def add(self, attempt: Attempt) -> None:
        """Of the finisher: an attempt ended."""
        self.ended.put_nowait(attempt)

    def wake(self) -> None:
        """Of the claimer."""

    def check_cancels(self) -> None:
        """Of the lease keeper."""

    def note_progress(self, context: Context) -> None:
        """Of the lease keeper."""
        self.said.append(context.encode_progress())


class LoneParts(Parts):
    """The parts of no worker: all but the gate that records starts, which records nothing by
    itself, are `others` until a test sets one."""

    def __init__(
        self,
        jobs: rota.Jobs | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        bus: Bus | None = None,
        **config: Any,
    ) -> None:
        if jobs is None:
            jobs = rota.Jobs()
            jobs.job("t")(_nothing)
        spec = WorkerSpec(
            types=jobs.types,
            release="1",
            lease_s=120.0,
            declaration="[]",
            config=WorkerConfig(**config),
            name="host:1",
        )
        super().__init__(spec, bus or Bus(), clock, Health(PauseGate(), clock), Shutdown(clock))
        self.others = others = Others()
        stands: Any = others
        self.finisher = self.claimer = self.lease_keeper = self.wait_sweeper = stands
        self.start_recorder = StartRecorder(self, StoreLink(Database(""), "start"))
        self.result_reader = ResultReader(self, StoreLink(Database(""), "start"))


def lone_executor(
    *,
    queue: str = "default",
    slots: int = 1,
    clock: Clock = SYSTEM_CLOCK,
    buffer_s: float = 60.0,
) -> tuple[Executor, Others]:
    """An executor that runs the jobs that are given to it, and what hears of their outcomes."""
    jobs = rota.Jobs()
    jobs.job("t", queue=queue)(_nothing)
    parts = LoneParts(jobs, clock=clock, buffer_s=buffer_s)
    group = SlotGroup((queue,), slots, clock.monotonic())
    runners = Runners(parts, Processes("host:1", None, Database(""), "r"))
    parts.executor = Executor(parts, [group], runners)
    return parts.executor, parts.others


def _nothing() -> None: ...
