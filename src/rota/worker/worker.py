"""One worker: it makes its parts, works until it is stopped or, in a drain, until nothing is due,
and stops in order."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from rota.errors import CopiedDatabase, DeclarationError
from rota.observe.events import WorkerStarted, WorkerStopped
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import LoopThread, PauseGate
from rota.store import ops
from rota.store.link import StoreLink
from rota.upkeep.upkeep_set import UpkeepSet
from rota.worker.call_executor import CallExecutor
from rota.worker.claimer import Claimer
from rota.worker.completion import Completer
from rota.worker.copy_guard import CopyGuard
from rota.worker.effects import EffectKeeper
from rota.worker.executor import Executor
from rota.worker.finisher import LOCK_TIMEOUT_S, UNTIMED_S, Finisher
from rota.worker.gates.breaker import BreakerGate
from rota.worker.gates.gatekeeper import Gatekeeper
from rota.worker.gates.rate_limits import RateLimitGate
from rota.worker.gates.results import ResultReader
from rota.worker.gates.start_record import StartRecorder
from rota.worker.health import Health
from rota.worker.lease_keeper import ANSWER_S, LeaseKeeper
from rota.worker.listener import Listener
from rota.worker.loop_watch import LoopWatch
from rota.worker.parts import Parts
from rota.worker.processes import Processes
from rota.worker.processes.importable import check_importable
from rota.worker.runners import Runners
from rota.worker.shutdown import Shutdown
from rota.worker.summary import Summary

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.observe.events import Bus
    from rota.runtime.service import Service
    from rota.store.db import Database
    from rota.worker.spec import WorkerSpec

GATES_LOCK_S = 1.0
"""The longest that the gatekeeper waits for the row of a rate limit or a breaker that another
transaction holds: all gated jobs of the worker wait with it."""


class Worker:
    """Claims, runs and finishes jobs until it is stopped or, in a drain, until nothing is due.

    Made and used on one loop; `health` may be read from any thread.
    """

    does_upkeep = True
    """Whether it also does the upkeep that any worker does."""

    def __init__(
        self, database: Database, spec: WorkerSpec, bus: Bus, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Raises DeclarationError if a handler cannot run in the process that its options ask
        for."""
        check_importable(spec.types.values(), spec.arounds)
        self.name = spec.name
        self._database = database
        self._spec = spec
        self._bus = bus
        self._pause_gate = PauseGate()
        self._shutdown = Shutdown(clock)
        self.health = Health(self._pause_gate, clock)
        self.parts = Parts(spec, bus, clock, self.health, self._shutdown)
        self.services: list[Service] = []
        """Those that run on the worker's loop, in the order in which they start and end."""
        self._tasks: list[asyncio.Task[None]] = []
        self._entering: asyncio.Task[Any] | None = None
        """The task that waits for the lifespan to begin."""

    @property
    def is_stopping(self) -> bool:
        """Whether it is stopping."""
        return self._shutdown.asked.is_set()

    def stop(self) -> None:
        """Begin to stop. A second call changes nothing. From the worker's own loop only."""
        if self.is_stopping:
            return
        self._shutdown.stop()
        if self._entering is not None:
            self._entering.cancel()

    def stop_now(self) -> None:
        """Stop, and skip the rest of the grace period. From the worker's own loop only."""
        self.stop()
        self._shutdown.stop_now()

    async def run(self) -> Summary:
        """Work until stopped or drained; return the summary.

        Raises:
            SchemaError: the schema is missing or not this release's.
            CopiedDatabase: in a drain, and the database is a restored copy.
            DatabaseUnavailable: at the start; in a drain also later. Outcomes of its jobs were
                recorded as far as possible.
            WorkerExhausted: its slots are full of handlers that do not stop.
        """
        self._database.statements.read_all()
        upkeep = StoreLink(self._database, "upkeep")
        parts, config = self.parts, self._spec.config
        async with AsyncExitStack() as stack:
            stack.push_async_callback(upkeep.close)
            state = await self._enter_lifespan(stack)
            if self.is_stopping:
                return Summary(0, 0, 0, 0, None)
            upkeep_set = UpkeepSet(
                self._bus, self._database, upkeep, self.name, config.alert_url, parts.clock
            )
            await self._begin(upkeep, upkeep_set)
            thread = LoopThread("rota-lease")
            stack.callback(thread.stop)
            self._build(upkeep, upkeep_set, thread)
            parts.executor.state = state
            await self._work_and_stop(thread)
            oldest_due = await self._shutdown.deregister(parts, upkeep)
        self._bus.emit(WorkerStopped(worker=self.name))
        failure = self._shutdown.failure or parts.claimer.failure
        if failure is not None:
            raise failure
        counts, claimer = parts.finisher.counts, parts.claimer
        return Summary(
            claimer.claimed,
            counts["succeeded"],
            counts["failed"],
            counts["dead"],
            oldest_due,
            sorted(claimer.paused),
        )

    # The lifespan

    async def _enter_lifespan(self, stack: AsyncExitStack) -> Any:
        """Enter it in this task, as cancel scopes require. A stop request ends the wait."""
        if self._spec.lifespan is None:
            return None
        self._entering = task = asyncio.current_task()
        try:
            return await stack.enter_async_context(self._make_lifespan())
        except asyncio.CancelledError:
            if not self.is_stopping or task is None or task.uncancel() > 0:
                raise
            return None
        finally:
            self._entering = None

    def _make_lifespan(self) -> AbstractAsyncContextManager[Any]:
        assert self._spec.lifespan is not None
        made: object = self._spec.lifespan()
        if not isinstance(made, AbstractAsyncContextManager):
            if inspect.iscoroutine(made):
                made.close()
            wanted = "an async context manager, as an async function under"
            wanted += " @contextlib.asynccontextmanager does"
            raise DeclarationError(f"App: lifespan must return {wanted}; it returned {made!r}")
        return made

    # The beginning

    async def _begin(self, upkeep: StoreLink, upkeep_set: UpkeepSet) -> None:
        """Prepare the first claim; in a drain, also run one pass of all upkeep."""
        spec = self._spec
        self._pause_gate.closed = copied = await upkeep.run(ops.copy_check())
        if spec.config.drain and copied is not None:
            raise CopiedDatabase(copied)
        await upkeep.run(ops.declare(spec.declaration, spec.release))
        # Before it counts as alive.
        await upkeep.run(ops.declare_schedules(spec.schedules, spec.release, is_deploy=False))
        await upkeep.run(ops.declare_limits(spec.limits, spec.release, is_deploy=False))
        await upkeep.run(ops.write_heartbeat({**spec.describe(), "running": 0}))
        # Retention makes the partitions of the days ahead, and may have to wait for locks.
        await upkeep.run(ops.ensure_partitions(days=0))
        if spec.config.drain and self.does_upkeep:
            await upkeep_set.run_before_drain(self._shutdown.asked.is_set)

    def _note_completing(self, context: Context) -> float | None:
        """Note that a handler finishes its job itself; return the seconds since it began. From any
        thread."""
        attempt = self.parts.attempts.get(context.job.id)
        if attempt is None or attempt.context is not context or attempt.began_at is None:
            return None  # it was lost: the database will refuse it
        attempt.completes = True
        return self.parts.clock.monotonic() - attempt.began_at

    def make_runners(self, processes: Processes) -> Runners:
        """Make what calls the handlers."""
        return Runners(self.parts, processes)

    def make_claimer(self, link: StoreLink, *, listens: bool) -> Claimer:
        """Make what claims the jobs."""
        return Claimer(self.parts, link, listens=listens)

    def make_finisher(self, link: StoreLink) -> Finisher:
        """Make what writes the outcomes."""
        return Finisher(self.parts, link)

    def make_gatekeeper(self, link: StoreLink) -> Gatekeeper:
        """Make what asks the gates whose answers are in the database."""
        gates = BreakerGate(self.parts, link), RateLimitGate(self.parts.clock, link)
        return Gatekeeper(self.parts, link, gates)

    def _build(self, upkeep: StoreLink, upkeep_set: UpkeepSet, thread: LoopThread) -> None:
        """Make the parts."""
        parts, spec, database = self.parts, self._spec, self._database
        shortest_s = spec.shortest_lease_s
        start, claim = StoreLink(database, "start"), StoreLink(database, "claim")
        finish = StoreLink(
            database,
            "finish",
            answer_s=None if database.notify else UNTIMED_S,
            lock_timeout_s=min(LOCK_TIMEOUT_S, shortest_s / 6),
        )
        answer_s = min(max(ANSWER_S[0], shortest_s / 4), ANSWER_S[1])
        lease = StoreLink(database, "lease", answer_s=answer_s)
        listens = database.notify and not spec.config.drain

        parts.start_recorder = StartRecorder(parts, start)
        parts.result_reader = ResultReader(parts, start)
        has_gates = any(job_type.has_gates for job_type in spec.types.values())
        if has_gates and spec.config.asks_gates:
            link = StoreLink(database, "gates", lock_timeout_s=GATES_LOCK_S)
            parts.gatekeeper = self.make_gatekeeper(link)
        groups = spec.make_slot_groups(parts.clock.monotonic())
        processes = Processes(self.name, spec.module, database, spec.release, spec.arounds)
        completer = Completer(database, spec.release, self._note_completing)
        runners = self.make_runners(processes)
        executor = CallExecutor if spec.has_chunks else Executor
        parts.executor = executor(parts, groups, runners, completer, EffectKeeper(database))
        parts.finisher = self.make_finisher(finish)
        parts.claimer = self.make_claimer(claim, listens=listens)
        parts.lease_keeper = LeaseKeeper(parts, lease, thread.loop)

        upkeepers = upkeep_set.services() if self.does_upkeep else []
        parts.lane_sweeper = upkeep_set.lane_sweeper
        parts.wait_sweeper = upkeep_set.wait_sweeper
        for service in upkeepers:
            service.pause_gate = self._pause_gate  # the database itself stops the claims
        self.services = [
            parts.executor,
            *(() if parts.gatekeeper is None else (parts.gatekeeper,)),
            parts.result_reader,
            parts.start_recorder,
            parts.finisher,
            parts.claimer,
            *upkeepers,
            CopyGuard(parts, upkeep, self._pause_gate),
        ]
        if not spec.config.drain:
            asking, url = tuple(self.services), spec.config.ping_url
            self.services.append(upkeep_set.make_pinger(asking, url, self.health.note_pass))
        if listens:
            listen = StoreLink(database, "listen")
            self.services.append(Listener(parts, listen, database.statements))

    # The work

    async def _work_and_stop(self, thread: LoopThread) -> None:
        """Run all services until the worker is to stop; then stop them in order."""
        parts, spec = self.parts, self._spec
        watch = LoopWatch(parts)
        keeping = asyncio.create_task(thread.run(parts.lease_keeper.run()))
        watching = asyncio.create_task(thread.run(watch.run()))
        apart: list[tuple[Service, asyncio.Task[None]]] = [
            (watch, watching),
            (parts.lease_keeper, keeping),
        ]
        self.health.begin(watch, parts.claimer, parts.lease_keeper)
        self._bus.emit(
            WorkerStarted(
                worker=self.name,
                release=spec.release,
                queues=spec.describe_queues(),
                urgent_slots=spec.describe_urgent_slots(),
            )
        )
        try:
            await self._work(keeping)
        finally:
            self.health.is_stopping = True
            running = list(zip(self.services, self._tasks, strict=False))
            try:
                await self._shutdown.finish(parts, running, spec.config.grace_s)
            finally:
                await self._shutdown.leave(parts, running, apart, thread)

    async def _work(self, keeping: asyncio.Task[None]) -> None:
        """Run the services until stopped, drained, or one of them fails for good."""
        if self.is_stopping:
            return  # stopped while it began: claim nothing only to hand it back
        self._tasks = [asyncio.create_task(one.run(), name=one.name) for one in self.services]
        stopping = asyncio.create_task(self._shutdown.asked.wait())
        try:
            waiting = [*self._tasks, keeping, stopping]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            # Only a drain's claimer ends by itself. The error that ended another one is raised
            # here.
            task.result()
