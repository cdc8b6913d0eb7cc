"""Stops attempts: at their timeouts, if they are cancelled or lost, and when the worker goes down.
A handler that does not stop is given up: it continues without a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from math import inf

from rota.errors import AttemptTimeout, RotaError, WorkerExhausted
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted
from rota.observe.events import Bus, HandlerAbandoned
from rota.runtime.clock import Clock
from rota.worker.attempt import LOST, Attempt
from rota.worker.calls import Call
from rota.worker.packs import find_unit
from rota.worker.runners import ASYNC_STOP_S
from rota.worker.slots import Unit

NOT_BEGUN = HandedBack("it had not begun")
DOWN = Interrupted("the worker went down while the handler ran")


class Stopper:
    """Says which of the attempts that have a slot must end. Times are monotonic seconds."""

    def __init__(
        self,
        worker: str,
        slots: int,
        bus: Bus,
        clock: Clock,
        running: Set[Attempt],
        end: Callable[[Attempt, End], None],
        free: Callable[[Attempt], None],
        fail: Callable[[RotaError], None],
    ) -> None:
        """`running` has the attempts that have a slot; `end` ends an attempt in its slot, `free`
        lets it leave; `fail` stops the worker."""
        self._worker = worker
        self._slots = slots
        self._bus = bus
        self._clock = clock
        self._running = running
        self._end = end
        self._free = free
        self._fail = fail
        self.abandoned: dict[Attempt, Unit] = {}
        """Attempts whose handlers continue without a slot, each with the unit that had it."""
        self.watch_at = inf
        """No running attempt must be stopped or ended before this time."""

    # Who must stop

    def lose(self, attempt: Attempt) -> None:
        """Stop an attempt whose job another claim has; its outcome is discarded."""
        if attempt.completes:
            return  # the job may be gone because it has succeeded
        if attempt.is_over or attempt.is_lost:
            return  # cancelled again and again, its handler could not even clean up
        attempt.lose()
        self._stop(attempt, LOST, LOST.why)

    def cancel(self, attempt: Attempt, reason: str | None) -> bool:
        """Ask the handler of a cancelled job to stop; return whether that is news. The attempt
        lasts until its handler ends: the outcome counts."""
        if attempt.is_over or attempt.stopped is not None:
            return False
        attempt.stop(Cancel(reason or ""), f"it was cancelled: {reason or 'no reason given'}")
        self._tell(attempt)
        return True

    def stop_running(self, stop_s: float) -> None:
        """Stop all, which then have so long to end."""
        for attempt in list(self._running):
            self._stop(attempt, DOWN, "the worker is going down", stop_s)

    def end_running(self) -> None:
        """End all that did not stop: the worker ends."""
        for attempt in [attempt for attempt in self._running if not attempt.is_over]:
            self._end(attempt, _find_outcome(attempt))

    async def cut_off(self) -> None:
        """Cancel the handlers that still run, without a long wait: the worker ends now."""
        found = {attempt.find_task() for attempt in self._running | self.abandoned.keys()}
        tasks = [task for task in found if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ASYNC_STOP_S)

    def _stop(self, attempt: Attempt, end: End, why: str, stop_s: float | None = None) -> None:
        """Stop a handler. Its attempt ends soon, as `end`, even if the handler continues."""
        if stop_s is None:
            stop_s = 0.0 if attempt.runner is None else attempt.runner.stop_s
        if not attempt.is_over:
            deadline = self._clock.monotonic() + stop_s
            attempt.stop(end, why, deadline)
            self.watch_at = min(self.watch_at, deadline)
        self._tell(attempt)

    def _tell(self, attempt: Attempt) -> None:
        if attempt.runner is not None:
            attempt.tell_stop()
            attempt.runner.stop(attempt)

    # Whose time is over

    def watch(self, now: float) -> None:
        """Stop and end the attempts whose time is over; note when the next attempt's may be."""
        self.watch_at = inf
        for attempt in list(self._running):
            self._watch(attempt, now)
        for attempt in self._running:
            self.watch_at = min(self.watch_at, _find_watch_at(attempt, now))

    def _watch(self, attempt: Attempt, now: float) -> None:
        if attempt in self.abandoned:
            return  # it leaves its slot in this turn of the loop
        timeout_s = attempt.timeout_s
        is_late = attempt.is_called and now - (attempt.began_at or now) > timeout_s
        if is_late and not attempt.is_over and attempt.stop_deadline == inf:
            why = f"it ran longer than its timeout of {timeout_s:g} s"
            self._stop(attempt, Errored(AttemptTimeout(timeout_s)), why)
        if now >= attempt.stop_deadline and not attempt.is_over:
            has_begun = attempt.began_at is not None
            self._end(attempt, (attempt.stop_outcome if has_begun else None) or NOT_BEGUN)
        call = None if attempt.pack is None else attempt.pack.current
        if is_late and attempt.is_over and (call is None or not call.find_open()):
            self._abandon(attempt, call)

    def _abandon(self, attempt: Attempt, call: Call | None) -> None:
        """Give up the slot of a handler that neither ends nor stops, with all attempts there."""
        unit = find_unit(attempt)
        members = {attempt: None} if call is None else call.give_up()
        for member, end in members.items():
            if end is not None and not member.is_over:
                self._end(member, end)
            member.abandon()
            self.abandoned[member] = unit
            self._free(member)
        for member in () if attempt.pack is None else attempt.pack.uncalled:
            if not member.is_over:
                self._end(member, Interrupted("the call before it did not end"))
            self._free(member)
        units = set(self.abandoned.values())
        self._bus.emit(
            HandlerAbandoned.of(attempt.job, self._worker, abandoned=len(units), slots=self._slots)
        )
        if len(units) >= self._slots:
            types = [unit.job.job_type for unit in units]
            self._fail(WorkerExhausted(sorted(types)))


def _find_watch_at(attempt: Attempt, now: float) -> float:
    """Return the earliest time at which a running attempt may have to be stopped or ended."""
    began_at = attempt.began_at if attempt.is_called else None
    until = (now if began_at is None else began_at) + attempt.timeout_s
    return until if attempt.is_over else min(until, attempt.stop_deadline)


def _find_outcome(attempt: Attempt) -> End:
    """Return the outcome when the worker ends before the handler: its stop's outcome, if any."""
    if attempt.began_at is None:
        return NOT_BEGUN
    stop = attempt.stop_outcome
    if stop is None or isinstance(stop, Interrupted):
        return Interrupted("the worker went down, and the handler did not stop")
    return stop
