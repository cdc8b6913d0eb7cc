"""Runs handlers: async ones as tasks, plain functions in threads or in processes, each within its slots and its maximum run time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.declare.context import Context
from rota.errors import AttemptTimeout
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted
from rota.observe.events import HandlerAbandoned
from rota.runtime.service import Service
from rota.worker.admission import Admission, refused
from rota.worker.handlers import Handlers
from rota.worker.suspects import Suspects

if TYPE_CHECKING:
    from rota.observe.events import Bus
    from rota.worker.held import Held
    from rota.worker.lane import Lane
    from rota.worker.processes import Processes

PATIENCE_S = 1.0
"""How long an async handler may take to stop when it was told to, and any when the worker goes down. Else a thread's attempt ends at once, for it may
never hear of it."""
KILLED_S = 10.0
"""The same for a handler in a process of its own: it is killed when it does not stop. That may take a busy machine a while, and frees the slot."""
HURRIED_S = 0.3
"""The same when the worker is in a hurry: one whose parent died is gone within a second, and its jobs must be back by then."""
UNRECORDED_S = 10.0
"""How long a job stays away whose start the database would not take."""
WATCH_S = 0.1
"""How often running jobs are looked at for their time; they may run over by so much."""


class Executor(Service):
    """Starts held jobs as slots get free; its turns watch the time of those that run."""

    name = "executor"

    def __init__(
        self,
        bus: Bus,
        lanes: list[Lane],
        worker: str,
        processes: Processes,
        *,
        buffer_s: float,
        on_record: Callable[[Held], None],
        on_end: Callable[[Held], None],
        on_free: Callable[[], None],
        on_exhausted: Callable[[], None],
        on_progress: Callable[[Context], None] | None = None,
    ) -> None:
        super().__init__(bus)
        self.lanes = lanes
        self.state: Any = None
        self._lane_of = {queue: lane for lane in lanes for queue in lane.queues}
        self._worker = worker
        self._buffer_s = buffer_s
        self._on_record = on_record
        self._on_end = on_end
        self._on_free = on_free
        self._on_exhausted = on_exhausted
        self._on_progress = on_progress
        self._running: set[Held] = set()
        """Those that have a slot."""
        self.abandoned: set[Held] = set()
        """Those that do not stop: their attempts have ended, and their slots are others'."""
        self._suspects = Suspects()
        self._admission = Admission()
        self._handlers = Handlers(processes, self._handler_ended)
        self._accepts = True
        self._idle = asyncio.Event()
        self._idle.set()

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
        if not self.is_idle:
            self.wake()

    def lose(self, held: Held) -> None:
        """Another worker has the job: stop its handler; what it comes to is discarded."""
        if held.end is None and not held.lost:  # told again and again, it could not even clean up
            held.lost = True
            self._stop(held, "its lease was lost", HandedBack("its lease was lost"))

    def cancel(self, held: Held, reason: str | None) -> None:
        """Somebody wants the job stopped. Its handler is told, and its attempt goes on until it stops: what it comes to counts."""
        if held.end is None and held.told is None:
            held.told = Cancel(reason or "")
            self._tell(held, f"it was cancelled: {reason or 'no reason given'}")

    def hand_back_buffered(self, why: str, claimed_before: float = float("inf")) -> None:
        """Give jobs back that have not started."""
        stale = [held for lane in self.lanes for held in lane.take_stale(claimed_before)]
        if not stale:
            return
        turns = self._suspects.turns()
        for held in stale:
            held.end = held.told or HandedBack(
                why, next(turns) if held.is_suspect and self._accepts else None
            )
            self._on_end(held)
        self._on_free()

    async def finish_running(self, grace_s: float, hurried: asyncio.Event) -> None:
        """Start nothing more, wait for what runs; what still runs after the grace period, or once `hurried`, is told to stop and handed back."""
        self._accepts = False
        self.hand_back_buffered("the worker is going down")
        if not self._running:
            return
        waiting = [asyncio.create_task(event.wait()) for event in (self._idle, hurried)]
        try:
            await asyncio.wait(waiting, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._running:
            await self._stop_running(HURRIED_S if hurried.is_set() else PATIENCE_S)

    async def _stop_running(self, patience_s: float) -> None:
        for one in list(self._running):
            self._stop(
                one,
                "the worker is going down",
                Interrupted("the worker went down while the handler ran"),
                patience_s,
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        for one in list(self._running):
            if one.end is None:
                self._ended(one, _left(one))

    async def tick(self) -> float | None:
        """Watch the time of what runs and of what waits in the buffer."""
        now = monotonic()
        for held in list(self._running):
            self._watch(held, now)
        self.hand_back_buffered("it waited too long for a free slot", now - self._buffer_s)
        for lane in self.lanes:
            self._fill(lane)  # time alone lets suspects begin
        return WATCH_S if not self.is_idle else None

    def _watch(self, held: Held, now: float) -> None:
        timeout_s = held.job_type.options.timeout_s
        is_late = held.begun_at is not None and now - held.begun_at > timeout_s
        if is_late and held.end is None and held.must_end_at is None:
            timed_out = Errored(AttemptTimeout(timeout_s))
            self._stop(held, f"it ran longer than its timeout of {timeout_s:g} s", timed_out)
        if (
            held.end is None
            and held.told is not None
            and held.must_end_at is not None
            and now >= held.must_end_at
        ):
            self._ended(
                held, held.told if held.begun_at is not None else HandedBack("it had not begun")
            )
        if is_late and held.end is not None:
            self._abandon(held)

    def _abandon(self, held: Held) -> None:
        """Give up the slot of a handler that neither ends nor stops."""
        self.abandoned.add(held)
        slots = sum(lane.slots for lane in self.lanes)
        self.bus.emit(
            HandlerAbandoned.of(held.job, self._worker, abandoned=len(self.abandoned), slots=slots)
        )
        if len(self.abandoned) >= slots:
            self._on_exhausted()
        self._free_slot(held)

    async def cut_off(self) -> None:
        """Cancel what still runs, without waiting for long: the worker was told to be gone."""
        tasks = [held.task for held in self._running | self.abandoned if held.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE_S)

    async def close(self) -> None:
        """Let the threads end; end the processes."""
        self._handlers.close()

    # Starting

    def _fill(self, lane: Lane) -> None:
        while lane.waiting and lane.running < lane.slots and self._accepts:
            held = lane.pop(self._suspects.let_begin)
            if held is None:
                return
            self._admit(lane, held)

    def _admit(self, lane: Lane, held: Held) -> None:
        prepared = (
            refused(held) if held.job.start_recorded is False else self._admission.arguments(held)
        )
        if prepared is not None and not isinstance(prepared, dict):
            held.end = prepared
            self._on_end(held)
            return
        lane.running += 1
        held.admitted = True
        self._running.add(held)
        if self._idle.is_set():
            self._idle.clear()
            self.wake()
        if held.is_suspect:
            self._suspects.add(held)
        if prepared is None:
            self._on_record(held)
        else:
            self._begin(held, prepared)

    def begin(self, held: Held) -> None:
        """The start of an admitted job has been recorded: begin, unless it is too late by now."""
        prepared = (
            self._admission.arguments(held)
            if self._accepts
            else HandedBack("the worker is going down")
        )
        if isinstance(prepared, dict):
            self._begin(held, prepared)
        else:
            self._handler_ended(held, prepared)

    def drop(self, held: Held) -> None:
        """The start of an admitted job could not be recorded: another has it, or it has ended meanwhile."""
        if held.end is None:
            held.lost = True
        self._handler_ended(held, HandedBack("its lease was lost"))

    def refuse(self, held: Held, why: str) -> None:
        """The database does not take the start of an admitted job: it goes back, for whoever can record it."""
        self._handler_ended(
            held, HandedBack(f"its start could not be recorded: {why}", UNRECORDED_S)
        )

    def _begin(self, held: Held, arguments: dict[str, Any]) -> None:
        held.started_at = monotonic()
        held.context = Context(held.job, self._worker, self.state, self._on_progress)
        self._handlers.begin(held, arguments)

    # Ending

    def _stop(self, held: Held, why: str, end: End, patience_s: float | None = None) -> None:
        """Tell a handler to stop; its attempt ends as `end`, soon, whether it stops or not. Nobody waits for a thread unless `patience_s` says so."""
        if held.must_end_at is None:
            held.told = end
            held.must_end_at = monotonic() + (
                _patience_s(held) if patience_s is None else patience_s
            )
        self._tell(held, why)

    def _tell(self, held: Held, why: str) -> None:
        if held.context is not None:
            held.context.tell_to_stop(why)
        if held.task is not None and held.begun_at is not None:
            held.task.cancel()

    def _handler_ended(self, held: Held, end: End) -> None:
        self._lane_of[held.job.queue].ended += 1
        self._ended(held, end)
        if self.abandoned and held in self.abandoned:
            self.abandoned.remove(held)
        else:
            self._free_slot(held)

    def suspect_over(self, held: Held) -> None:
        """What a suspect came to is written, or it was lost: until then it would be charged for what the next one does."""
        self._suspects.discard(held)
        for lane in self.lanes:
            self._fill(lane)

    def _free_slot(self, held: Held) -> None:
        lane = self._lane_of[held.job.queue]
        lane.running -= 1
        self._running.discard(held)
        if lane.waiting:
            self._fill(lane)
        if not self._running:
            self._idle.set()
        if lane.running < lane.slots or lane.held <= lane.low:
            self._on_free()

    def _ended(self, held: Held, end: End) -> None:
        if held.end is None:  # a handler that was given up may end later; only the first end counts
            held.end = end
            if held.started_at is not None:
                held.ran_s = monotonic() - held.started_at
            self._on_end(held)


def _left(held: Held) -> End:
    """What an attempt comes to whose handler runs on when the worker goes: what it was told before that, if it was."""
    if held.begun_at is None:
        return HandedBack("it had not begun")
    if held.told is None or isinstance(held.told, Interrupted):
        return Interrupted("the worker went down, and the handler did not stop")
    return held.told


def _patience_s(held: Held) -> float:
    if held.job_type.options.process is not None:
        return KILLED_S
    return 0 if held.task is None else PATIENCE_S
