"""Runs handlers: async ones as tasks, plain functions in threads, each within its slots and its maximum run time."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.context import Context, enter
from rota.errors import AttemptCancelled, AttemptTimeout, PayloadError
from rota.job import End, Errored, Expired, HandedBack, Misfit, Outcome, Succeeded
from rota.result import encode_result
from rota.service import Service
from rota.worker.threads import Threads

if TYPE_CHECKING:
    from rota.events import Bus
    from rota.worker.held import Held
    from rota.worker.lane import Lane

logger = logging.getLogger("rota")

PATIENCE_S = 1.0
"""How long an async handler may take to stop when it was told to; a thread's attempt ends at once, for it may never hear of it."""
WATCH_S = 0.1
"""How often running jobs are looked at for their time; they may run over by so much."""


class Executor(Service):
    """Starts held jobs as slots get free; its turns watch the time of those that run."""

    name = "executor"

    def __init__(
        self, bus: Bus, lanes: list[Lane], worker: str, *, buffer_s: float, on_end: Callable[[Held], None], on_free: Callable[[], None]
    ) -> None:
        super().__init__(bus)
        self.lanes = lanes
        self.state: Any = None
        self._lane_of = {queue: lane for lane in lanes for queue in lane.queues}
        self._worker = worker
        self._buffer_s = buffer_s
        self._on_end = on_end
        self._on_free = on_free
        self._running: set[Held] = set()
        self._threads = Threads("rota-handler")
        self._loop = asyncio.get_running_loop()
        # Every handler starts from the worker's own context: one is often started where another has just ended, whose variables are its own.
        self._context = contextvars.copy_context()
        self._accepts = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._warned: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is buffered and nothing runs."""
        return not self._running and not any(lane.waiting for lane in self.lanes)

    def take(self, held: Iterable[Held]) -> None:
        """Take claimed jobs; start what there are slots for."""
        touched = set()
        for one in held:
            lane = self._lane_of[one.job.queue]
            lane.push(one)
            touched.add(lane)
        for lane in touched:
            self._fill(lane)
        if not self._accepts:
            self.hand_back_buffered("the worker is going down")
        if self._running:
            self._idle.clear()
            self.wake()

    def lose(self, held: Held) -> None:
        """Another worker has the job: stop its handler; what it comes to is discarded."""
        if held.end is None:
            held.lost = True
            self._stop(held, "its lease was lost", HandedBack("its lease was lost"))

    def hand_back_buffered(self, why: str, claimed_before: float = float("inf")) -> None:
        """Give jobs back that have not started."""
        for lane in self.lanes:
            for held in lane.take_stale(claimed_before):
                self._never_started(held, HandedBack(why))

    async def finish_running(self, grace_s: float) -> None:
        """Start nothing more, wait for what runs; what still runs after the grace period is told to stop and handed back."""
        self._accepts = False
        self.hand_back_buffered("the worker is going down")
        if not self._running:
            return
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            await self._stop_running()

    async def _stop_running(self) -> None:
        tasks = [one.task for one in self._running if one.task is not None]
        for one in list(self._running):
            self._stop(one, "the worker is going down", HandedBack("the worker is going down"))
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE_S)
        for one in list(self._running):
            if one.end is None:
                self._ended(one, HandedBack("the worker is going down, and its handler did not stop"))

    async def tick(self) -> float | None:
        """Watch the time of what runs and of what waits in the buffer."""
        now = monotonic()
        for held in list(self._running):
            timeout_s = held.job_type.settings.timeout_s
            begun_at = held.started_at if held.entered or held.task is None else None
            if held.end is None and held.told is None and begun_at is not None and now - begun_at > timeout_s:
                timed_out = Errored(AttemptTimeout(timeout_s))
                self._stop(held, f"it ran longer than its timeout of {timeout_s:g} s", timed_out)
            elif held.end is None and held.told is not None and (held.task is None or now - held.told_at > PATIENCE_S):
                self._ended(held, held.told)  # it does not stop: its slot is free when it ends, and what it comes to is discarded
        self.hand_back_buffered("it waited too long for a free slot", now - self._buffer_s)
        return WATCH_S if not self.is_idle else None

    async def abandon(self) -> None:
        """Cancel what still runs, without waiting for long: the worker was told to be gone."""
        tasks = [held.task for held in self._running if held.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE_S)

    async def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    # Starting

    def _fill(self, lane: Lane) -> None:
        while lane.waiting and lane.running < lane.slots and self._accepts:
            self._start(lane, lane.pop())

    def _start(self, lane: Lane, held: Held) -> None:
        now = monotonic()
        job = held.job
        if held.lost or not held.may_start(now):
            self._never_started(held, HandedBack("its lease had less than a quarter left"))
            return
        started = job.started_at  # the database's clock at the claim
        if job.expires_at is not None and started is not None and (job.expires_at - started).total_seconds() <= now - held.claimed_at:
            self._never_started(held, Expired())
            return
        try:
            arguments, unknown = held.job_type.arguments(job)
        except Exception as error:  # noqa: BLE001 - an upgrade function is the user's code
            self._never_started(held, Misfit(error) if isinstance(error, PayloadError) else Errored(error))
            return
        if unknown:
            self._warn_unknown(held, unknown)
        lane.running += 1
        self._running.add(held)
        held.started_at = now
        held.context = Context(job, self._worker, self.state)
        if held.job_type.is_async:
            held.task = self._loop.create_task(self._attempt(held, arguments), context=self._context.copy(), name=f"rota job {job.id}")
        else:
            self._threads.submit(self._in_thread(held, arguments))

    def _warn_unknown(self, held: Held, unknown: frozenset[str]) -> None:
        name = held.job_type.name
        if name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "job type %r: fields of a stored payload that its handler does not take are ignored: %s", name, ", ".join(sorted(unknown))
            )

    # Running

    async def _attempt(self, held: Held, arguments: dict[str, Any]) -> None:
        assert held.context is not None
        enter(held.context)
        if held.told is not None:  # told to stop before its first step: cancelling the task then would skip the line below
            self._handler_ended(held, HandedBack("it was told to stop before it began"))
            return
        held.started_at = monotonic()  # a blocked loop may have kept it waiting; its time begins now
        held.entered = True
        try:
            func = held.job_type.func
            result = await (func(held.context, **arguments) if held.job_type.takes_context else func(**arguments))
            end = self._end_of(held, result)
        except BaseException as error:  # noqa: BLE001 - SystemExit and a cancellation too: they end the attempt, never the worker
            end = self._end_of_error(held, error)
        self._handler_ended(held, end)

    def _in_thread(self, held: Held, arguments: dict[str, Any]) -> Callable[[], None]:
        def call() -> None:
            assert held.context is not None
            enter(held.context)
            try:
                func = held.job_type.func
                end = self._end_of(held, func(held.context, **arguments) if held.job_type.takes_context else func(**arguments))
            except BaseException as error:  # noqa: BLE001 - as above
                end = self._end_of_error(held, error)
            with suppress(RuntimeError):  # the loop is closed: the worker had given this thread up, and its job back
                self._loop.call_soon_threadsafe(self._handler_ended, held, end)

        context = self._context.copy()
        return lambda: context.run(call)

    def _end_of(self, held: Held, result: Any) -> End:
        if result is None:
            return _NOTHING
        if isinstance(result, Outcome):
            return result
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            return Errored(
                TypeError("the handler returned an awaitable that nobody awaits: declare the async function itself, or await inside")
            )
        if isinstance(result, type) and issubclass(result, Outcome):
            return Errored(TypeError(f"the handler returned the class {result.__name__}; return an instance, as in {result.__name__}(…)"))
        encoded, problem = encode_result(result)
        if problem is not None:
            logger.warning("job %s %s: its result is not kept: %s", held.job.id, held.job.job_type, problem)
        return Succeeded(encoded)

    def _end_of_error(self, held: Held, error: BaseException) -> End:
        if isinstance(error, Outcome):
            return error
        if held.told is not None and isinstance(error, asyncio.CancelledError | AttemptCancelled):
            return held.told
        return Errored(error)

    # Ending

    def _stop(self, held: Held, why: str, end: End) -> None:
        if held.told is None:
            held.told, held.told_at = end, monotonic()
        if held.context is not None:
            held.context.tell_to_stop(why)
        if held.task is not None and held.entered:
            held.task.cancel()

    def _never_started(self, held: Held, end: End) -> None:
        held.end = end
        self._on_end(held)

    def _handler_ended(self, held: Held, end: End) -> None:
        lane = self._lane_of[held.job.queue]
        lane.running -= 1
        lane.ended += 1
        self._running.discard(held)
        self._ended(held, end)
        if lane.waiting:
            self._fill(lane)
        if not self._running:
            self._idle.set()
        if lane.running + lane.waiting <= lane.low or lane.running < lane.slots:
            self._on_free()

    def _ended(self, held: Held, end: End) -> None:
        if held.end is None:  # a thread that was given up may end later; only the first end counts
            held.end = end
            if held.started_at is not None:
                held.ran_s = monotonic() - held.started_at
            self._on_end(held)


_NOTHING = Succeeded(None)
