"""One worker: it makes its parts, works until it is stopped or drained, and stops in order."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from rota.declare.context import Context
from rota.declare.jobs import Lifespan
from rota.declare.secret import find_keys_problem
from rota.errors import CopiedDatabase, DeclarationError
from rota.logs import filter_last_resort
from rota.model.failure import list_names
from rota.observe.events import Bus, WorkerStarted, WorkerStopped
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.service import LoopThread, PauseGate, Service
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.upkeep_set import UpkeepSet
from rota.worker.attempt import Attempt
from rota.worker.breakers import EndpointReports
from rota.worker.by_hand import ByHand, Picker
from rota.worker.claimer import Claimer
from rota.worker.completion import Completer
from rota.worker.copy_guard import CopyGuard
from rota.worker.effects import EffectKeeper
from rota.worker.executor import Executor
from rota.worker.finisher import LOCK_TIMEOUT_S, UNTIMED_S, Finisher
from rota.worker.health import Health
from rota.worker.lease_keeper import ANSWER_S, LeaseKeeper
from rota.worker.listener import Listener
from rota.worker.loop_watch import LoopWatch
from rota.worker.processes.importable import check_importable
from rota.worker.processes.process_runner import ProcessRunner
from rota.worker.runners import Runners
from rota.worker.shutdown import Parts, Shutdown
from rota.worker.spec import WorkerSpec
from rota.worker.starter import Starter
from rota.worker.summary import Summary
from rota.worker.type_watch import TypeWatch

logger = logging.getLogger("rota")

START_LOCK_S = 1.0
"""Longest wait of the starter for a locked row: all that it has wait too."""


class Worker:
    """Claims, runs and finishes jobs until it is stopped or, in a drain, until nothing is due. Made
    and used on one loop; `health` may be read from any thread."""

    def __init__(
        self,
        database: Database,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock = SYSTEM_CLOCK,
        *,
        hand: ByHand | None = None,
    ) -> None:
        """`hand` says how it runs single jobs, without upkeep; None: it claims what is due. Raises
        DeclarationError: a handler cannot run in the process that its options ask for."""
        check_importable(spec.types.values(), spec.lease_s, spec.arounds)
        self.name = spec.name
        self._database = database
        self._spec = spec
        self._bus = bus
        self._hand = hand
        self._pause_gate = PauseGate()
        self._clock = clock
        self.health = Health(self._pause_gate, clock)
        self._shutdown = Shutdown(spec, clock)
        self.attempts: dict[int, Attempt] = {}
        """All unwritten attempts, by job id. On the worker's loop the executor adds and the
        finisher removes; the lease keeper's threads read a copy."""
        self.parts: Parts
        self._state: Any = None
        self.services: list[Service] = []
        """The services of the worker's loop, in the order in which they start and end."""
        self._tasks: list[asyncio.Task[None]] = []
        self._entering: asyncio.Task[Any] | None = None
        """The task that waits for the lifespan to begin."""

    @property
    def is_stopping(self) -> bool:
        return self._shutdown.asked.is_set()

    def stop(self) -> None:
        """Begin to stop. A second call changes nothing. From the worker's own loop only."""
        if not self.is_stopping and self._entering is not None:
            self._entering.cancel()
        self._shutdown.asked.set()

    def stop_now(self) -> None:
        """Stop, and skip the rest of the grace period. From the worker's own loop only."""
        self.stop()
        self._shutdown.asked_now.set()

    async def run(self) -> Summary:
        """Work until stopped or drained; return the summary. Raises SchemaError, WorkerExhausted,
        CopiedDatabase in a drain, and DatabaseUnavailable at the start or in a drain."""
        self._database.statements.read_all()
        upkeep = StoreLink(self._database, "upkeep")
        config = self._spec.config
        async with AsyncExitStack() as stack:
            stack.push_async_callback(upkeep.close)
            if config.stop_after_s is not None:
                timer = asyncio.get_running_loop().call_later(config.stop_after_s, self.stop)
                stack.callback(timer.cancel)
            self._state = await self._enter_lifespan(stack)
            if self.is_stopping:
                return Summary(0, 0, 0, 0, None)
            upkeep_set = UpkeepSet(
                self._bus, self._database, upkeep, self.name, config.alert_url, self._clock,
                is_drain=config.drain,
            )  # fmt: skip
            await self._begin(upkeep, upkeep_set)
            thread = LoopThread("rota-lease")
            stack.callback(thread.stop)
            self.parts = parts = self._build(upkeep, upkeep_set, thread)
            await self._work_and_stop(thread)
            oldest_due = await self._shutdown.deregister(parts, upkeep)
        unwritten = parts.finisher.list_unwritten()
        self._bus.emit(WorkerStopped(worker=self.name, unwritten=unwritten))
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
        if self._spec.lifespan is None and not self._spec.lifespans:
            return None
        self._entering = task = asyncio.current_task()
        try:
            for lifespan in self._spec.lifespans:
                await stack.enter_async_context(_make_lifespan(lifespan, "Jobs"))
            if self._spec.lifespan is None:
                return None
            return await stack.enter_async_context(_make_lifespan(self._spec.lifespan, "App"))
        except asyncio.CancelledError:
            if not self.is_stopping or task is None or task.uncancel() > 0:
                raise
            return None
        finally:
            self._entering = None

    # The beginning

    async def _begin(self, upkeep: StoreLink, upkeep_set: UpkeepSet) -> None:
        """Prepare the first claim. A drain also runs one pass of all maintenance."""
        spec = self._spec
        filter_last_resort()
        self._pause_gate.closed = copied = await upkeep.run(ops.copy_check())
        if spec.config.drain and copied is not None:
            raise CopiedDatabase(copied)
        await upkeep.run(ops.declare(spec.declaration, spec.release))
        # Before the worker counts as alive.
        names = sorted(spec.types)
        declared = ops.declare_schedules(spec.schedules, spec.release, names, is_deploy=False)
        await upkeep.run(declared)
        await upkeep.run(ops.declare_limits(spec.limits, spec.release, is_deploy=False))
        await upkeep.run(ops.write_heartbeat({**spec.describe(), "running": 0}))
        if spec.keyless:
            logger.warning(
                "jobs of %s wait: they have secret arguments, and this worker can open none: %s",
                list_names(spec.keyless), find_keys_problem(),
            )  # fmt: skip
        # Retention makes the partitions of the days ahead, and may have to wait for locks.
        await upkeep.run(ops.ensure_partitions(days=0))
        if spec.config.drain and self._hand is None:
            await upkeep_set.run_before_drain(self._shutdown.asked.is_set)

    def _note_completing(self, context: Context) -> float | None:
        """Note that a handler finishes its job itself; return the seconds since it began."""
        attempt = self.attempts.get(context.job.id)
        if attempt is None or attempt.context is not context or attempt.began_at is None:
            return None  # it was lost: the database will refuse it
        attempt.completes = True
        return self._clock.monotonic() - attempt.began_at

    def _build(self, upkeep: StoreLink, upkeep_set: UpkeepSet, thread: LoopThread) -> Parts:
        spec, database, hand = self._spec, self._database, self._hand
        bus, clock = self._bus, self._clock
        finish = StoreLink(
            database,
            "finish",
            answer_s=None if database.notify else UNTIMED_S,
            lock_timeout_s=min(LOCK_TIMEOUT_S, spec.shortest_lease_s / 6),
        )
        lane_sweeper, wait_sweeper = upkeep_set.lane_sweeper, upkeep_set.wait_sweeper
        on_end = None if hand is None else hand.note_end
        finisher = Finisher(spec, bus, clock, self.attempts, finish, wait_sweeper, on_end)
        executor = Executor(
            spec, bus, clock, self.attempts, finisher, self._make_contexts(), self._shutdown.fail
        )
        executor.runners = self._make_runners(executor)
        start = StoreLink(database, "begin", lock_timeout_s=START_LOCK_S)
        starter = Starter(bus, clock, start, executor.begin, executor.handle_end)
        end_drain = self._shutdown.fail if spec.config.drain else None
        copy_guard = CopyGuard(bus, clock, upkeep, self._pause_gate, end_drain)
        claim = StoreLink(database, "claim")
        claimer: Claimer | Picker
        if hand is None:
            claimer = Claimer(
                spec, bus, clock, claim, executor, finisher, lane_sweeper, wait_sweeper,
                upkeep_set.asker, copy_guard,
            )  # fmt: skip
        else:
            claimer = Picker(spec, bus, clock, claim, executor, hand)
        executor.starter, finisher.note_written = starter, executor.note_written
        breakers = [job_type.breaker for job_type in spec.types.values() if job_type.breaker]
        if spec.config.asks_limits and breakers:
            executor.reports = finisher.reports = EndpointReports(
                bus, clock, finish, executor.note_told, lane_sweeper.hasten
            )
        executor.wake_claimer, finisher.claimer = claimer.wake, claimer
        answer_s = min(max(ANSWER_S[0], spec.shortest_lease_s / 4), ANSWER_S[1])
        lease = StoreLink(database, "lease", answer_s=answer_s)
        lease_keeper = LeaseKeeper(
            spec, bus, clock, lease, thread.loop, executor, finisher, claimer, self.health
        )
        upkeepers = upkeep_set.services() if hand is None else []
        for service in upkeepers:
            service.pause_gate = self._pause_gate  # the database itself stops the claims
        self.services = [executor, starter, finisher, claimer, *upkeepers, copy_guard]
        if hand is None:
            queues = spec.list_queues()
            self.services.append(TypeWatch(bus, clock, upkeep, queues, spec.module))
        if not spec.config.drain:
            services, url = tuple(self.services), spec.config.ping_url
            self.services.append(upkeep_set.make_pinger(services, url, self.health.note_pass))
        if database.notify and not spec.config.drain and isinstance(claimer, Claimer):
            listen = StoreLink(database, "listen")
            check_cancels = lease_keeper.check_cancels
            self.services.append(
                Listener(bus, clock, listen, spec.peer, queues, claimer, check_cancels)
            )
        self.health.services = tuple(self.services)
        return Parts(finisher, executor, claimer, lease_keeper)

    def _make_contexts(self) -> Callable[[Attempt], Context]:
        spec, database = self._spec, self._database
        completer = Completer(database, spec.release, self._note_completing)
        effects = EffectKeeper(database)

        def make(attempt: Attempt) -> Context:
            note_progress = self.parts.lease_keeper.note_progress
            return Context(
                attempt.job, spec.name, self._state, note_progress, completer, effects,
                attempt.results, attempt.job_type.jobs, self._find_time_left,
            )  # fmt: skip

        return make

    def _find_time_left(self, context: Context) -> float:
        """Return what is left of a timeout, from any thread. The context does not know its attempt,
        so that neither keeps the other alive."""
        attempt = self.attempts.get(context.job.id)
        if attempt is None or attempt.context is not context:
            return 0.0  # it is over, and perhaps another claim of the job runs here
        return attempt.find_time_left(self._clock.monotonic())

    def _make_runners(self, executor: Executor) -> Runners:
        spec = self._spec
        here = None if self._hand is None else self._hand.here
        processes = None
        if here is None:
            processes = ProcessRunner(executor.handle_end, spec, self._database)
        return Runners(self.name, spec.arounds, self._clock, executor.handle_end, processes, here)

    # The work

    async def _work_and_stop(self, thread: LoopThread) -> None:
        parts, spec = self.parts, self._spec
        watch = LoopWatch(self._bus, self._clock, self.attempts)
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
        self._tasks = [asyncio.create_task(part.run(), name=part.name) for part in self.services]
        stopping = asyncio.create_task(self._shutdown.asked.wait())
        try:
            waiting = [*self._tasks, keeping, stopping]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            # Only a drain's claimer ends by itself. Another task's error is raised here.
            task.result()


def _make_lifespan(lifespan: Lifespan, what: str) -> AbstractAsyncContextManager[Any]:
    made: object = lifespan()
    if not isinstance(made, AbstractAsyncContextManager):
        if inspect.iscoroutine(made):
            made.close()
        wanted = "an async context manager, as an async function under"
        wanted += " @contextlib.asynccontextmanager does"
        raise DeclarationError(f"{what}: lifespan must return {wanted}; it returned {made!r}")
    return made
