"""Starts attempts as slots get free, each through the gates, and stops those that must end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import TYPE_CHECKING, Any

from rota.declare.context import Completes, Context
from rota.errors import AttemptTimeout, WorkerExhausted
from rota.model.failure import list_names
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted
from rota.observe.events import HandlerAbandoned
from rota.runtime.service import Service
from rota.worker.gates import Wait
from rota.worker.gates.lease import LeaseGate
from rota.worker.gates.suspects import SuspectGate
from rota.worker.runners import ASYNC_STOP_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.declare.effect import KeepsEffects
    from rota.declare.job_type import JobType
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers, Gate
    from rota.worker.parts import Parts
    from rota.worker.runners import Runners
    from rota.worker.slots import SlotGroup

logger = logging.getLogger("rota")

STOP_NOW_S = 0.3
"""How long handlers may take to stop when the worker must stop now: a worker whose parent died ends
within a second, and its jobs must be handed back by then."""
REFUSED_S = 10.0
"""Seconds until a job may be claimed again to which the database refused what it needs to begin."""
BEGIN_MAX = 64
"""Most handlers that begin in one turn of the loop: on Python 3.12 and later each takes its first
step in it."""
WATCH_S = 0.1
"""Seconds between checks of running jobs, which may exceed their timeout by as much."""


class Executor(Service):
    """Starts and stops attempts. Its turns check the time of running and of buffered jobs."""

    name = "executor"

    def __init__(
        self,
        parts: Parts,
        groups: list[SlotGroup],
        runners: Runners,
        completer: Completes | None = None,
        effects: KeepsEffects | None = None,
    ) -> None:
        super().__init__(parts.bus, parts.clock)
        self.groups = groups
        self.state: Any = None
        """What the App's lifespan yielded."""
        self.abandoned: set[Attempt] = set()
        """Attempts whose handlers continue without a slot."""
        self._parts = parts
        self._group_of = {queue: group for group in groups for queue in group.queues}
        self._running: set[Attempt] = set()
        """Attempts that have a slot."""
        self._runners = runners
        self._completer = completer
        self._effects = effects
        self._lease = LeaseGate()
        self._suspects = SuspectGate()
        asked = () if parts.gatekeeper is None else (parts.gatekeeper,)
        self._all_gates: tuple[Gate, ...] = (
            self._lease,
            self._suspects,
            *asked,
            parts.result_reader,
            parts.start_recorder,
        )
        self._plain_gates: tuple[Gate, ...] = (self._lease,)
        """For jobs that were not lost, need no record and waited for no others, of types without a
        rate limit and a breaker: nearly all."""
        self._gatekeeper = parts.gatekeeper
        self._warned: set[str] = set()
        """Job types with a logged warning about ignored fields of a payload."""
        self._accepts = True
        self._refills_soon = False
        self._context = contextvars.copy_context()
        """The worker's own: a refill does not run with what the handler that ended has set."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is buffered and nothing runs."""
        return not self._running and not any(group.waiting for group in self.groups)

    def adopt_queue(self, queue: str) -> None:
        """Let the jobs of a queue without slots of its own use those of the first group."""
        self._group_of.setdefault(queue, self.groups[0])

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Take claimed jobs; start as many as there are free slots."""
        touched = set()
        gatekeeper = self._gatekeeper
        for attempt in attempts:
            group = self._group_of[attempt.job.queue]
            if gatekeeper is not None and attempt.job_type.has_gates:
                group.ask(attempt)
                gatekeeper.add(attempt)
                continue
            group.push(attempt)
            touched.add(group)
        for group in touched:
            self._fill(group)
        if not self._accepts:
            self.hand_back_buffered("the worker is going down")
        if not self.is_idle:
            self.wake()

    # What the gatekeeper says

    def note_held(self, attempt: Attempt) -> None:
        """Note that the gatekeeper holds an attempt back for a while."""
        self._group_of[attempt.job.queue].hold(attempt)

    def let_in(self, attempts: Sequence[Attempt]) -> None:
        """Take the attempts that the gatekeeper lets in, before others of their priority."""
        now = self.clock.monotonic()
        by_group: dict[SlotGroup, list[Attempt]] = {}
        for attempt in attempts:
            assert attempt.ticket is not None
            group = self._group_of[attempt.job.queue]
            group.let_go(attempt)
            attempt.ticket.let_in_at = now
            by_group.setdefault(group, []).append(attempt)
        for group, fresh in by_group.items():
            self._push_first(group, fresh)
            self._fill(group)
        if not self._accepts:
            self.hand_back_buffered("the worker is going down")
        if not self.is_idle:
            self.wake()

    def _push_first(self, group: SlotGroup, fresh: list[Attempt]) -> None:
        group.push_first(fresh)

    def end_held(self, attempt: Attempt, end: End) -> None:
        """End an attempt that the gatekeeper does not let in. It counts as one that ended: jobs
        that are put back are claimed in batches as large as those of jobs that run."""
        group = self._group_of[attempt.job.queue]
        group.let_go(attempt)
        group.note_put_back(attempt)
        self._end(attempt, end)
        if group.needs_claim:
            self._parts.claimer.wake()

    def resume(self, attempt: Attempt) -> None:
        """Go on with an admitted attempt that waited in its slot, for the gatekeeper or for what it
        is told of other jobs."""
        parts, now = self._parts, self.clock.monotonic()
        is_recorded = attempt.ticket is not None and attempt.ticket.is_start_recorded
        if attempt.results is None:
            parts.result_reader.hold_back([attempt], now)
        elif attempt.must_record_start and not is_recorded:
            parts.start_recorder.hold_back([attempt], now)
        else:
            self.begin(attempt)

    async def tick(self) -> float | None:
        """Check the time of running and of buffered jobs."""
        now = self.clock.monotonic()
        for attempt in list(self._running):
            self._watch(attempt, now)
        buffer_s = self._parts.spec.config.buffer_s
        self.hand_back_buffered("it waited too long for a free slot", now - buffer_s)
        self._fill_all()  # time alone lets suspects begin
        return WATCH_S if not self.is_idle else None

    async def close(self) -> None:
        """Let the threads end; end the processes."""
        self._runners.close()

    # Starting

    def _fill_all(self) -> None:
        for group in self.groups:
            self._fill(group)

    def _fill(self, group: SlotGroup) -> None:
        """Begin as many as there are free slots, at most BEGIN_MAX: the rest in the next turn."""
        if not group.waiting or not (startable := group.startable) or not self._accepts:
            return
        now = self.clock.monotonic()
        batch = group.pop(min(startable, BEGIN_MAX), now)
        # All get their slots, and so have their leases renewed, before the first handler begins: it
        # may take its time.
        admitted = [
            (attempt, arguments)
            for attempt in self._pass_gates(group, batch, now)
            if (arguments := self._admit(group, attempt)) is not None
        ]
        for attempt, arguments in admitted:
            self._begin(attempt, arguments)
        if batch and len(admitted) < startable:
            self._refill_soon()

    def _refill_soon(self) -> None:
        """Fill free slots in the loop's next turn, once for all jobs that end in this one.

        Not at once: a handler that ends in its first step would begin the next within its own.
        """
        if not self._refills_soon:
            self._refills_soon = True
            self._parts.loop.call_soon(self._refill, context=self._context)

    def _refill(self) -> None:
        self._refills_soon = False
        self._fill_all()
        if any(group.needs_claim for group in self.groups):
            self._parts.claimer.wake()
        if not self._running:
            self._idle.set()

    def _pass_gates(self, group: SlotGroup, batch: list[Attempt], now: float) -> list[Attempt]:
        """Ask the gates in a row; return those that may begin now."""
        gates = self._plain_gates
        for attempt in batch:
            if (
                attempt.is_suspect
                or attempt.must_record_start
                or attempt.ticket is not None
                or attempt.results is None
            ):
                gates = self._all_gates
        for gate in gates:
            answers = gate.hold_back(batch, now)
            if answers:
                batch = [attempt for attempt in batch if attempt not in answers]
                self._hold_back(group, answers)
        return batch

    def _hold_back(self, group: SlotGroup, answers: Answers) -> None:
        aside: list[Attempt] = []
        until = 0.0
        for attempt, answer in answers.items():
            if not isinstance(answer, Wait):
                self._end(attempt, answer)
            elif answer.in_slot:
                self._take_slot(group, attempt)
            elif answer.is_kept:
                self._suspects.release(attempt)  # it would wait for itself when it comes back
                group.hold(attempt)
            else:
                aside.append(attempt)
                until = max(until, answer.until)
        if aside:
            group.put_aside(aside, until)

    def _admit(self, group: SlotGroup, attempt: Attempt) -> dict[str, Any] | None:
        """Give a slot to an attempt that passed the gates; return its arguments, or None if its
        handler cannot be called."""
        arguments = self._read_arguments(attempt)
        if isinstance(arguments, dict):
            self._take_slot(group, attempt)
            return arguments
        self._end(attempt, arguments)
        return None

    def _take_slot(self, group: SlotGroup, attempt: Attempt) -> None:
        attempt.admit()
        group.take_slot(attempt)
        self._running.add(attempt)
        if self._idle.is_set():
            self._idle.clear()
            self.wake()

    def begin(self, attempt: Attempt) -> None:
        """Begin an admitted attempt that waited in its slot, unless it is too late by now."""
        answer = self._hold_in_slot(attempt)
        arguments = self._read_arguments(attempt) if answer is None else answer
        if isinstance(arguments, dict):
            self._begin(attempt, arguments)
        elif not isinstance(arguments, Wait):
            self.handle_end(attempt, arguments)

    def _hold_in_slot(self, attempt: Attempt) -> Wait | End | None:
        """Return why an attempt that waited in its slot may not begin now; None: it may."""
        if not self._accepts:
            return HandedBack("the worker is going down")
        now = self.clock.monotonic()
        answer = self._lease.hold_back([attempt], now).get(attempt)
        if answer is None and attempt.ticket is not None and self._gatekeeper is not None:
            attempt.ticket.is_start_recorded = True
            answer = self._gatekeeper.hold_in_slot(attempt, now)
        return answer

    def drop(self, attempt: Attempt) -> None:
        """End an admitted attempt whose start could not be recorded: another has the job."""
        if not attempt.is_over:
            attempt.lose()
        self.handle_end(attempt, HandedBack("its lease was lost"))

    def refuse(self, attempt: Attempt, why: str) -> None:
        """Hand back an admitted attempt to which the database refuses what it needs to begin."""
        self.handle_end(attempt, HandedBack(why, REFUSED_S))

    def _read_arguments(self, attempt: Attempt) -> dict[str, Any] | End:
        """Return the arguments of the handler, or why it cannot be called."""
        read = attempt.read_arguments()
        if not isinstance(read, tuple):
            return read
        arguments, unknown = read
        if unknown:
            self._tell_unknown(attempt.job_type, unknown)
        return arguments

    def _tell_unknown(self, job_type: JobType[..., ..., Any], unknown: frozenset[str]) -> None:
        if job_type.name not in self._warned:
            self._warned.add(job_type.name)
            fields = list_names(unknown)
            what = "fields of a stored payload that its handler does not take are ignored"
            logger.warning("job type %r: %s: %s", job_type.name, what, fields)

    def _begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        attempt.context = self._make_context(attempt)
        self._call_handler(attempt, arguments)

    def _make_context(self, attempt: Attempt) -> Context:
        parts = self._parts
        return Context(
            attempt.job,
            parts.spec.name,
            self.state,
            parts.lease_keeper.note_progress,
            self._completer,
            self._effects,
            attempt.results,
        )

    def _call_handler(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        attempt.runner = self._runners[attempt.job_type]
        attempt.begin()
        attempt.runner.begin(attempt, arguments)

    # Stopping

    def lose(self, attempt: Attempt) -> None:
        """Stop an attempt whose job another claim has; its outcome is discarded."""
        if attempt.completes:
            return  # the job may be gone because it has succeeded
        if attempt.is_over or attempt.is_lost:
            return  # cancelled again and again, its handler could not even clean up
        attempt.lose()
        self._stop(attempt, "its lease was lost", HandedBack("its lease was lost"))

    def cancel(self, attempt: Attempt, reason: str | None) -> None:
        """Ask the handler of a cancelled job to stop. The attempt lasts until its handler ends: the
        outcome counts."""
        if not attempt.is_over and attempt.stop_outcome is None:
            attempt.stop(Cancel(reason or ""))
            self._request_stop(attempt, f"it was cancelled: {reason or 'no reason given'}")
            if attempt.ticket is not None and self._gatekeeper is not None:
                self._gatekeeper.ask_again(attempt)

    def hand_back_buffered(self, why: str, claimed_before: float = float("inf")) -> None:
        """Hand back jobs that have not started."""
        stale = [attempt for group in self.groups for attempt in group.take_stale(claimed_before)]
        if self._gatekeeper is not None and not self._accepts:
            for attempt in self._gatekeeper.take_all():
                self._group_of[attempt.job.queue].let_go(attempt)
                stale.append(attempt)
        if not stale:
            return
        turns = self._suspects.iterate_turns()
        for attempt in stale:
            delay_s = next(turns) if attempt.is_suspect and self._accepts else None
            self._end(attempt, attempt.stop_outcome or HandedBack(why, delay_s))
        self._parts.claimer.wake()

    async def finish_running(self, grace_s: float, stop_now: asyncio.Event) -> None:
        """Start nothing more, and wait for the running jobs. After the grace period, or once
        `stop_now` is set, stop those that still run and hand them back."""
        self._accepts = False
        self.hand_back_buffered("the worker is going down")
        if not self._running:
            return
        await self.clock.wait(self._idle, stop_now, timeout_s=grace_s)
        if self._running:
            await self._stop_running(STOP_NOW_S if stop_now.is_set() else ASYNC_STOP_S)

    async def _stop_running(self, stop_s: float) -> None:
        down = Interrupted("the worker went down while the handler ran")
        for attempt in list(self._running):
            self._stop(attempt, "the worker is going down", down, stop_s)
        await self.clock.wait(self._idle, timeout_s=stop_s)
        for attempt in list(self._running):
            if not attempt.is_over:
                self._end(attempt, _find_outcome(attempt))

    async def cut_off(self) -> None:
        """Cancel the handlers that still run, without a long wait: the worker ends now."""
        handlers = self._running | self.abandoned
        tasks = [attempt.task for attempt in handlers if attempt.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ASYNC_STOP_S)

    def _watch(self, attempt: Attempt, now: float) -> None:
        timeout_s = attempt.timeout_s
        is_late = attempt.began_at is not None and now - attempt.began_at > timeout_s
        if is_late and not attempt.is_over and attempt.stop_deadline is None:
            why = f"it ran longer than its timeout of {timeout_s:g} s"
            self._stop(attempt, why, Errored(AttemptTimeout(timeout_s)))
        if attempt.is_overdue(now):
            assert attempt.stop_outcome is not None
            has_begun = attempt.began_at is not None
            end = attempt.stop_outcome if has_begun else HandedBack("it had not begun")
            self._end(attempt, end)
        if is_late and attempt.is_over:
            self._abandon(attempt)

    def _stop(self, attempt: Attempt, why: str, end: End, stop_s: float | None = None) -> None:
        """Stop a handler. Its attempt ends soon, as `end`, even if the handler continues."""
        if stop_s is None:
            stop_s = 0.0 if attempt.runner is None else attempt.runner.stop_s
        if not attempt.is_over:
            attempt.stop(end, self.clock.monotonic() + stop_s)
        self._request_stop(attempt, why)

    def _request_stop(self, attempt: Attempt, why: str) -> None:
        if attempt.context is not None and attempt.runner is not None:
            attempt.context.request_stop(why)
            attempt.runner.stop(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Give up the slot of a handler that neither ends nor stops."""
        attempt.abandon()
        self.abandoned.add(attempt)
        count, slots = len(self.abandoned), sum(group.slots for group in self.groups)
        worker = self._parts.spec.name
        self.bus.emit(HandlerAbandoned.of(attempt.job, worker, abandoned=count, slots=slots))
        if count >= slots:
            types = sorted(one.job.job_type for one in self.abandoned)
            self._parts.shutdown.fail(WorkerExhausted(types))
        self._free_slot(attempt)

    # Ending

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """Take the outcome of a handler that ended, or that will not be called."""
        if attempt.outcome is None:  # a handler that was given up may end later
            self._end(attempt, end)
        if self.abandoned and attempt in self.abandoned:
            self.abandoned.remove(attempt)
        else:
            self._free_slot(attempt)

    def release_suspect(self, attempt: Attempt) -> None:
        """Note that a suspect's outcome is written, or that it is lost. Until then it would be
        charged for a crash that the next one causes."""
        self._suspects.release(attempt)
        for group in self.groups:
            group.release()
        self._fill_all()

    def _end(self, attempt: Attempt, end: End) -> None:
        attempt.end(end, self.clock.monotonic())
        keeper = self._gatekeeper if attempt.ticket is not None else None
        if keeper is None or not keeper.note_end(attempt):
            self._parts.finisher.add(attempt)

    def _free_slot(self, attempt: Attempt) -> None:
        self._group_of[attempt.job.queue].free_slot(attempt)
        self._running.discard(attempt)
        self._refill_soon()


def _find_outcome(attempt: Attempt) -> End:
    """Return the outcome of an attempt whose handler still runs when the worker ends: the outcome
    of its stop, if it was stopped before."""
    if attempt.began_at is None:
        return HandedBack("it had not begun")
    if attempt.stop_outcome is None or isinstance(attempt.stop_outcome, Interrupted):
        return Interrupted("the worker went down, and the handler did not stop")
    return attempt.stop_outcome
