"""One worker: starts its parts in order, works until it is told to stop or, in a drain, nothing is due, and departs in order."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from rota.declare.config import WorkerConfig
from rota.errors import CopiedDatabase, DeclarationError, RotaError, WorkerExhausted
from rota.observe.events import Bus, WorkerStarted, WorkerStopped
from rota.runtime.service import Gate, LoopThread, Service
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.upkeep.pinger import Pinger
from rota.upkeep.rounds import UpkeepSet
from rota.worker.claimer import Claimer
from rota.worker.crew import Crew
from rota.worker.departure import Departure
from rota.worker.executor import Executor
from rota.worker.finisher import LOCK_TIMEOUT_S, UNTIMED_S, Finisher
from rota.worker.identity import Identity
from rota.worker.lease import ANSWER_S, LeaseKeeper
from rota.worker.listener import Listener
from rota.worker.processes import Processes
from rota.worker.pulse import Pulse
from rota.worker.reach import refuse_unreachable
from rota.worker.report import Report
from rota.worker.stamp import StampWatch
from rota.worker.starter import Starter
from rota.worker.watch import LoopWatch

if TYPE_CHECKING:
    from rota.worker.held import Held, HeldJobs


class Worker:
    """Claims, runs and finishes jobs until it is told to stop or, in a drain, nothing is due."""

    def __init__(self, database: Database, crew: Crew, bus: Bus, config: WorkerConfig) -> None:
        """Raises DeclarationError when a handler that is to run in a process of its own cannot."""
        refuse_unreachable(crew.types.values())
        self._identity = Identity(crew, config)
        self.name = self._identity.name
        self._database = database
        self._crew = crew
        self._bus = bus
        self._config = config
        self._gate = Gate()
        self.pulse = Pulse(self._gate)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._held: HeldJobs = {}
        self._failure: RotaError | None = None
        """What ended it, though nobody asked."""
        self._entering: asyncio.Task[Any] | None = None
        self._parts: list[Service] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin to stop; told again, it changes nothing. From the worker's own loop only."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._entering is not None:
            self._entering.cancel()

    def hurry(self) -> None:
        """Stop, and let running handlers go on no longer, not even for the rest of the grace period. From the worker's own loop only."""
        self.stop()
        self._hurry.set()

    async def run(self) -> Report:
        """Work until stopped or drained; return what was done.

        Raises:
            SchemaError: the schema is missing or not this release's.
            CopiedDatabase: in a drain, and the database is a restored copy.
            DatabaseUnavailable: at the start; in a drain also later. What its jobs came to was recorded if that was possible at all.
            WorkerExhausted: its slots are full of handlers that do not stop.
        """
        self._database.statements.read_all()
        upkeep = StoreLink(self._database, "upkeep")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(upkeep.close)
            state = await self._enter_lifespan(stack)
            if self._stop.is_set():
                return Report(0, 0, 0, 0, None)
            rounds = UpkeepSet(self._bus, self._database, upkeep, self.name, self._config.alert_url)
            await self._begin(upkeep, rounds)
            thread = LoopThread("rota-lease")
            stack.callback(thread.stop)
            executor, finisher, claimer, keeper = self._build(upkeep, rounds, state, thread)
            watch = LoopWatch(self._bus, self._held)
            keeping = asyncio.create_task(thread.run(keeper.run()))
            apart = [(watch, asyncio.create_task(thread.run(watch.run()))), (keeper, keeping)]
            departure = Departure(
                executor, finisher, claimer, self._hurry, is_drain=self._config.drain
            )
            self.pulse.begin(watch, claimer, keeper)
            self._bus.emit(
                WorkerStarted(
                    worker=self.name,
                    release=self._crew.release,
                    queues=self._identity.queues_in_words(),
                )
            )
            try:
                await self._work(keeping)
            finally:
                self.pulse.is_stopping = True
                running = list(zip(self._parts, self._tasks, strict=False))
                try:
                    await departure.finish(running, self._config.grace_s)
                finally:
                    await departure.leave(running, apart, thread)
            oldest_due = await departure.last_word(upkeep, self.name)
        self._bus.emit(WorkerStopped(worker=self.name))
        failure = self._failure or claimer.failure
        if failure is not None:
            raise failure
        counts = finisher.counts
        return Report(
            claimer.claimed,
            counts["succeeded"],
            counts["failed"],
            counts["dead"],
            oldest_due,
            sorted(claimer.paused),
        )

    def _exhausted(self, executor: Executor) -> None:
        if self._failure is None:
            self._failure = WorkerExhausted(
                sorted(held.job.job_type for held in executor.abandoned)
            )
            self.stop()

    def _copied(self, reason: str) -> None:
        if self._failure is None:
            self._failure = CopiedDatabase(reason)
            self.stop()

    async def _enter_lifespan(self, stack: AsyncExitStack) -> Any:
        """Enter it in this very task, as cancel scopes want it; the order to stop ends the waiting."""
        if self._crew.lifespan is None:
            return None
        self._entering = task = asyncio.current_task()
        try:
            return await stack.enter_async_context(self._lifespan())
        except asyncio.CancelledError:
            if not self._stop.is_set() or task is None or task.uncancel() > 0:
                raise
            return None
        finally:
            self._entering = None

    def _lifespan(self) -> AbstractAsyncContextManager[Any]:
        assert self._crew.lifespan is not None
        made: object = self._crew.lifespan()
        if not isinstance(made, AbstractAsyncContextManager):
            if inspect.iscoroutine(made):
                made.close()
            wanted = "an async context manager, as an async function under @contextlib.asynccontextmanager does"
            raise DeclarationError(f"App: lifespan must return {wanted}; it returned {made!r}")
        return made

    async def _begin(self, upkeep: StoreLink, rounds: UpkeepSet) -> None:
        """What must be so before the first claim; in a drain, also one pass of all upkeep."""
        self._gate.closed = copied = await upkeep.run(ops.copy_check())
        if self._config.drain and copied is not None:
            raise CopiedDatabase(copied)
        await upkeep.run(ops.declare(self._crew.declaration, self._crew.release))
        await upkeep.run(
            ops.declare_schedules(self._crew.schedules, self._crew.release, is_deploy=False)
        )  # before it counts as alive
        await upkeep.run(ops.beat({**self._identity.sign(), "running": 0}))
        await upkeep.run(
            ops.ensure_partitions(days=0)
        )  # the days ahead are retention's, which may have to wait for them
        if self._config.drain:
            await rounds.one_round(self._stop.is_set)

    def _build(
        self, upkeep: StoreLink, rounds: UpkeepSet, state: Any, thread: LoopThread
    ) -> tuple[Executor, Finisher, Claimer, LeaseKeeper]:
        bus, database, config = self._bus, self._database, self._config
        executor = Executor(
            bus,
            self._identity.lanes(),
            self.name,
            Processes(self.name, self._crew.module),
            buffer_s=config.buffer_s,
            on_record=lambda held: starter.put(held),  # noqa: PLW0108 - it is made after this
            on_end=lambda held: finisher.put(held),  # noqa: PLW0108
            on_free=lambda: claimer.wake(),  # noqa: PLW0108
            on_exhausted=lambda: self._exhausted(executor),
            on_progress=lambda context: keeper.report(context),  # noqa: PLW0108
        )
        executor.state = state
        starter = Starter(
            bus, StoreLink(database, "start"), executor.begin, executor.drop, executor.refuse
        )
        finisher = Finisher(
            bus,
            StoreLink(
                database,
                "finish",
                answer_s=None if database.notify else UNTIMED_S,
                lock_timeout_s=min(LOCK_TIMEOUT_S, self._identity.shortest_lease_s / 6),
            ),
            self._held,
            self.name,
            self._crew.release,
            on_suspect_over=executor.suspect_over,
            on_nothing_held=lambda: claimer.wake(),  # noqa: PLW0108
        )
        rings = database.notify and not config.drain
        claimer = Claimer(
            bus,
            StoreLink(database, "claim"),
            executor,
            self._held,
            self._identity.claimant(),
            self._crew.types,
            config,
            rings=rings,
        )
        keeper = self._keeper(executor, claimer, finisher, thread)
        upkeepers = rounds.services()
        for part in upkeepers:
            part.gate = self._gate  # the claims are stopped by the database itself
        watch = StampWatch(bus, upkeep, self._gate, self._copied if config.drain else None)
        self._parts = [executor, starter, finisher, claimer, *upkeepers, watch]
        if not config.drain:
            self._parts.append(
                Pinger(bus, rounds.alerts, tuple(self._parts), config.ping_url, self.pulse.passed)
            )
        if rings:
            hears: dict[str, Any] = {
                "on_ring": claimer.ring,
                "on_storm": claimer.mute,
                "on_call": keeper.hurry,
            }
            self._parts.append(
                Listener(
                    bus, StoreLink(database, "listen"), database.statements, self.name, **hears
                )
            )
        return executor, finisher, claimer, keeper

    def _keeper(
        self, executor: Executor, claimer: Claimer, finisher: Finisher, thread: LoopThread
    ) -> LeaseKeeper:
        def on_lost(held: Held) -> None:
            self._loop.call_soon_threadsafe(executor.lose, held)

        def on_cancel(held: Held, why: str | None) -> None:
            self._loop.call_soon_threadsafe(executor.cancel, held, why)

        def on_beat(workers: int) -> None:
            claimer.workers = workers
            self.pulse.answered()

        answer_s = min(max(ANSWER_S[0], self._identity.shortest_lease_s / 4), ANSWER_S[1])
        return LeaseKeeper(
            self._bus,
            StoreLink(self._database, "lease", answer_s=answer_s),
            thread.loop,
            self._held,
            self._identity.claimant(),
            self._identity.sign(),
            on_lost=on_lost,
            on_cancel=on_cancel,
            on_beat=on_beat,
            counted=lambda: {name: finisher.counts[name] for name in ops.COUNTS},
        )

    async def _work(self, keeping: asyncio.Task[None]) -> None:
        """Run the parts until stopped, drained, or one of them fails for good."""
        if self._stop.is_set():
            return  # told so while it began: nothing is claimed only to be handed back
        self._tasks = [asyncio.create_task(part.run(), name=part.name) for part in self._parts]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait(
                [*self._tasks, keeping, stopping], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            task.result()  # none but a drain's claimer ends by itself: what ended it is raised here
