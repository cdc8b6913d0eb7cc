"""Starts attempts as slots get free, and hands back attempts that wait too long for a slot."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence, Set
from math import inf
from typing import TypeVar

from rota.declare.context import Context
from rota.errors import RotaError
from rota.model.awaited import has_awaited
from rota.model.outcome import End, HandedBack
from rota.observe.events import Bus, JobClaimed
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store.ops import BreakerPlace
from rota.worker.attempt import Attempt
from rota.worker.breakers import EndpointReports, find_place
from rota.worker.finisher import Finisher
from rota.worker.packs import Packer, count_slots, list_attempts, list_units
from rota.worker.runners import ASYNC_STOP_S, Runners
from rota.worker.slots import SlotGroup, Unit
from rota.worker.spec import WorkerSpec
from rota.worker.starter import Starter
from rota.worker.stopper import Stopper
from rota.worker.suspects import Suspects
from rota.worker.turns import Turns

U = TypeVar("U", bound=Unit)

STOP_NOW_S = 0.3
"""Longest stop of handlers that must stop now: a worker without its parent ends within a second."""
BEGIN_MAX = 32
"""Most handlers that begin in one turn of the loop: it hears no database answer meanwhile."""
WATCH_S = 0.1
"""Seconds between checks of running jobs, which may exceed their timeout by as much."""
STALE = HandedBack("it waited too long for a free slot")
GOING_DOWN = HandedBack("the worker is going down")
OPEN = HandedBack("its breaker has opened")
UNTOLD = HandedBack("its breaker cannot be told of a failure", 10.0)


class Executor(Service):
    """Gives slots to attempts, and takes their ends. Its turns check running and buffered jobs."""

    name = "executor"
    # Set once, before the first claim
    runners: Runners
    """Who calls the handlers, and tells `handle_end`."""
    starter: Starter
    wake_claimer: Callable[[], None]
    reports: EndpointReports | None = None
    """None: no breaker is asked."""

    def __init__(
        self,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock,
        attempts: dict[int, Attempt],
        finisher: Finisher,
        make_context: Callable[[Attempt], Context],
        fail: Callable[[RotaError], None],
    ) -> None:
        """`make_context` is called from any thread; `fail` stops the worker."""
        super().__init__(bus, clock)
        self.groups = spec.make_slot_groups(clock.monotonic())
        self._spec = spec
        self.attempts = attempts
        """All attempts that are not written yet, by job id."""
        self._finisher = finisher
        self._make_context = make_context
        self._loop = asyncio.get_running_loop()
        self._group_of = {queue: group for group in self.groups for queue in group.queues}
        has_packs = any(job_type.chunk is not None for job_type in spec.types.values())
        self._packer = Packer() if has_packs else None
        self._turns = Turns(Suspects(clock, spec.config.buffer_s))
        self._running: set[Attempt] = set()
        self._left: list[Attempt] = []
        """Attempts that leave their slots when this turn of the loop ends."""
        self._ended: list[Attempt] = []
        """Attempts whose outcomes go to the finisher when this turn of the loop ends."""
        self._aside: dict[Attempt, float] = {}
        """Since when attempts wait until their breakers are told of a failure."""
        self._accepts = True
        self._refills_soon = False
        self._context = contextvars.copy_context()
        """The worker's own: a refill must not see what the ended handler has set."""
        self._idle = asyncio.Event()
        self._idle.set()
        slots = sum(group.slots for group in self.groups)
        self.stopper = Stopper(
            spec.name, slots, bus, clock, self._running, self._end, self._free, fail
        )

    @property
    def is_idle(self) -> bool:
        return not self._running and not any(group.waiting or group.coming for group in self.groups)

    def adopt_queue(self, queue: str) -> None:
        """Let the jobs of a queue without its own slots use the first group's."""
        self._group_of.setdefault(queue, self.groups[0])

    # What comes

    def expect(self, attempts: Sequence[Attempt]) -> None:
        """Count claimed jobs that `take` gets soon. From now on they are the worker's."""
        by_id = {attempt.job.id: attempt for attempt in attempts}
        for id_ in by_id.keys() & self.attempts.keys():
            # Its lease expired unnoticed, and the job has come back under a new claim.
            self.stopper.lose(self.attempts[id_])
        self.attempts.update(by_id)
        for group, some in self._sort_by_group(attempts):
            slots = count_slots(some) if self._packer is not None else len(some)
            group.note_claimed(len(some), slots, _count_bytes(some))
            group.note_coming(some, 1)

    def take(self, attempts: Sequence[Attempt]) -> None:
        """Take the expected jobs; start as many as there are free slots."""
        if self.bus.wants(JobClaimed):
            for attempt in attempts:
                since = attempt.job.started_at  # when it was claimed
                waited_s = 0.0 if since is None else (since - attempt.job.run_at).total_seconds()
                self.bus.emit(JobClaimed.of(attempt.job, self._spec.name, waited_s=waited_s))
        for group, some in self._sort_by_group(attempts):
            group.note_coming(some, -1)
        for attempt in attempts:
            if attempt.job.meta_json is not None and has_awaited(attempt.job):
                attempt.results = None  # unknown until it has a slot
        early = [attempt for attempt in attempts if attempt.is_suspect or attempt.starts_in_s]
        if early:
            self._turns.take(early, self.clock.monotonic())
            gone = set(early)
            attempts = [attempt for attempt in attempts if attempt not in gone]
        self._buffer(attempts)
        if early:
            self._let_in()
            self.wake()

    def note_written(self, attempt: Attempt) -> None:
        """Let the next suspects begin: the outcome of a suspect is written, or never will be."""
        self._turns.note_written(attempt)
        self.wake()

    def _let_in(self) -> None:
        """Take attempts whose turns have come, before others of their priority. An attempt that is
        not let in counts as ended: the next claim is as large as if its job had run."""
        now = self.clock.monotonic()
        able, ends = self._turns.take_due(now)
        if ends:
            for group, some in self._sort_by_group(list(ends)):
                group.note_ended(some)
            self._end_all(ends)
        for attempt in able:
            attempt.let_in_at = now
        if able:
            self._buffer(able, is_first=True)
        if ends and any(group.needs_claim for group in self.groups):
            self.wake_claimer()

    def _buffer(self, attempts: Sequence[Attempt], *, is_first: bool = False) -> None:
        """Put attempts into the buffer, in packs if called together; start what has a slot."""
        if self.reports is not None:
            attempts = self._sift(self.reports, attempts)
        units: Sequence[Unit] = attempts
        if self._packer is not None:
            units, early = self._packer.gather(attempts, self.clock.monotonic())
            for group, packs in self._sort_by_group(early):
                group.hold(packs)
        for group, some in self._sort_by_group(units):
            group.push(some, is_first=is_first)
        self._fill_all()
        if not self._accepts:
            self._hand_back_all()
        if not self.is_idle:
            self.wake()

    def _sift(self, reports: EndpointReports, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """Set attempts aside whose breakers must be told first, hand back attempts whose breakers
        have opened, and return the others."""
        found = reports.sift(attempts, self.clock.monotonic())
        if not found:
            return attempts
        self._set_aside([attempt for attempt, may_wait in found.items() if may_wait])
        self._hand_back([attempt for attempt, may_wait in found.items() if not may_wait], OPEN)
        return [attempt for attempt in attempts if attempt not in found]

    def _sort_by_group(self, units: Sequence[U]) -> list[tuple[SlotGroup, Sequence[U]]]:
        if len(self.groups) == 1:
            return [(self.groups[0], units)] if units else []
        by_group: dict[SlotGroup, list[U]] = {}
        for unit in units:
            by_group.setdefault(self._group_of[unit.job.queue], []).append(unit)
        return list(by_group.items())

    # Starting

    def _fill_all(self) -> None:
        for group in self.groups:
            self._fill(group)

    def _fill(self, group: SlotGroup) -> None:
        """Begin as many attempts as there are free slots, at most BEGIN_MAX."""
        now = self.clock.monotonic()
        if group.held:
            group.release(now)
        if not group.waiting or not (startable := group.startable) or not self._accepts:
            return
        units = group.pop(min(startable, BEGIN_MAX))
        # All get slots, and so renewed leases, before the first handler begins: it may take its
        # time.
        able = self._seat(group, units)
        self._begin(able, now)
        if group.startable:
            self._refill_soon()

    def _seat(self, group: SlotGroup, units: Sequence[Unit]) -> Sequence[Attempt]:
        """Give slots to attempts; return the attempts that may begin at once."""
        able = seated = self._end_stopped(self._unpack(units))
        waiting = [
            attempt for attempt in able if attempt.must_record_start or attempt.results is None
        ]
        if waiting:
            self.starter.take(waiting)
            gone = set(waiting)
            able = [attempt for attempt in able if attempt not in gone]
        Attempt.admit(seated)
        self._running.update(seated)
        group.take_slots(list_units(seated) if self._packer is not None else seated)
        if seated and self._idle.is_set():
            self._idle.clear()
            self.wake()
        return able

    def _unpack(self, units: Sequence[Unit]) -> Sequence[Attempt]:
        if self._packer is None:
            return units  # type: ignore[return-value] # all of them are attempts
        return self._packer.unpack(units)

    def _end_stopped(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """End attempts that were stopped while they waited; return the others."""
        stopped = {
            attempt: attempt.stopped.outcome for attempt in attempts if attempt.stopped is not None
        }
        if not stopped:
            return attempts
        self._end_all(stopped)
        return [attempt for attempt in attempts if attempt not in stopped]

    def begin(self, attempts: Sequence[Attempt]) -> None:
        able: list[Attempt] = []
        for attempt in attempts:
            end = attempt.stop_outcome if self._accepts else GOING_DOWN
            if end is None:
                able.append(attempt)
            else:
                self.handle_end(attempt, end)
        self._begin(able, self.clock.monotonic())

    def _begin(self, attempts: Sequence[Attempt], now: float) -> None:
        for job_type in dict.fromkeys([attempt.job_type for attempt in attempts]):
            alike = [attempt for attempt in attempts if attempt.job_type is job_type]
            runner = self.runners[job_type]
            Attempt.begin(alike, runner, self._make_context)
            own_s = [attempt.timeout_s for attempt in alike if attempt.job.timeout_s is not None]
            shortest_s = min([job_type.options.timeout_s, *own_s])
            self.stopper.watch_at = min(self.stopper.watch_at, now + shortest_s)
            runner.begin(alike)

    def _refill_soon(self) -> None:
        """Fill free slots in the loop's next turn, once for all jobs that end in this turn: else a
        handler that ends in its first step would begin the next handler within its own step."""
        if not self._refills_soon:
            self._refills_soon = True
            self._loop.call_soon(self._refill, context=self._context)

    def _refill(self) -> None:
        self._refills_soon = False
        self._take_in()
        self._fill_all()
        if any(group.needs_claim for group in self.groups):
            self.wake_claimer()
        if not self._running:
            self._idle.set()

    # Ending

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """Take the outcome of a handler that ended, or that will not be called."""
        attempt.task = None
        if attempt.outcome is None:  # a handler that was given up may end later
            attempt.end(end, self.clock.monotonic())
            self._ended.append(attempt)
        if attempt in self.stopper.abandoned:
            del self.stopper.abandoned[attempt]
        else:
            self._free(attempt)

    def _free(self, attempt: Attempt) -> None:
        """Let an attempt leave its slot at the end of this turn of the loop."""
        self._left.append(attempt)
        if not self._refills_soon:
            self._refill_soon()

    def _take_in(self) -> None:
        """Free the slots of attempts that ended in this turn, and pass on their outcomes."""
        if self._left:
            left, self._left = self._left, []
            self._running.difference_update(left)
            for group, some in self._sort_by_group(left):
                group.free_slots(some if self._packer is None else self._packer.leave(some))
        if self._ended:
            ended, self._ended = self._ended, []
            self._pass_on(ended)

    def _end(self, attempt: Attempt, end: End) -> None:
        """End an attempt whose handler may go on in its slot."""
        attempt.end(end, self.clock.monotonic())
        self._pass_on([attempt])

    def _end_all(self, ends: Mapping[Attempt, End]) -> None:
        if self._packer is not None:
            self._packer.leave(ends)
        now = self.clock.monotonic()
        for attempt, end in ends.items():
            attempt.end(end, now)
        self._pass_on(list(ends))

    def _pass_on(self, ended: Sequence[Attempt]) -> None:
        if self.reports is not None and (places := self.reports.note_ended(ended)):
            self._set_aside(self._take_buffered(places))
        self._finisher.take(ended)

    # Stopping

    async def tick(self) -> float | None:
        """Check the time of running jobs, and of jobs that wait without a slot."""
        self._take_in()
        now = self.clock.monotonic()
        if now >= self.stopper.watch_at:
            self.stopper.watch(now)
        buffer_s = self._spec.config.buffer_s
        stale = [unit for group in self.groups for unit in group.take_stale(now - buffer_s)]
        self._hand_back(self._unpack(stale), STALE)
        if self._aside:
            self._hand_back(self._take_aside(now - buffer_s), UNTOLD)
        if self._find_due_at() <= now:
            self._fill_all()
            self._let_in()
        at = self._find_due_at()
        if self.is_idle and at == inf:
            return None
        return max(0.0, min(WATCH_S, at - now))

    def _find_due_at(self) -> float:
        """Return when the next attempt without a slot is to be looked at."""
        at = self._turns.find_due_at() if self._turns.waiting else inf
        return min([at, *(group.find_due_at() for group in self.groups if group.held)])

    async def close(self) -> None:
        self.runners.close()

    def cancel(self, attempt: Attempt, reason: str | None) -> None:
        """Ask the handler of a cancelled job to stop. An attempt that waits ends at once."""
        if self.stopper.cancel(attempt, reason):
            self.starter.hasten(attempt)
            if self._turns.hasten(attempt):
                self.wake()

    def _hand_back_all(self) -> None:
        """Hand back all attempts without a slot: the worker goes down."""
        units = [unit for group in self.groups for unit in group.take(lambda _: True)]
        attempts = [*self._unpack(units), *self._take_aside(), *self._turns.take_all()]
        self._hand_back(attempts, GOING_DOWN)

    def note_told(self, opened: Set[BreakerPlace]) -> None:
        """Let jobs begin that waited for their breakers; hand back jobs whose breakers opened."""
        again = self._take_aside()
        if opened:
            again += self._take_buffered(opened)
        self._buffer(again, is_first=True)

    def _set_aside(self, attempts: Sequence[Attempt]) -> None:
        """Let attempts wait until their breakers are told. Meanwhile they count as coming."""
        self._aside |= dict.fromkeys(attempts, self.clock.monotonic())
        for group, some in self._sort_by_group(attempts):
            group.note_coming(some, 1)

    def _take_aside(self, before: float = inf) -> list[Attempt]:
        """Take attempts that were set aside before a time."""
        taken = [attempt for attempt, since in self._aside.items() if since < before]
        for attempt in taken:
            del self._aside[attempt]
        for group, some in self._sort_by_group(taken):
            group.note_coming(some, -1)
        return taken

    def _take_buffered(self, places: Set[BreakerPlace]) -> list[Attempt]:
        """Take jobs of these breakers that wait for a slot, or for others to join their call."""

        def is_meant(unit: Unit) -> bool:
            return any(find_place(attempt) in places for attempt in list_attempts(unit))

        units = [unit for group in self.groups for unit in group.take(is_meant)]
        return list(self._unpack(units))

    def _hand_back(self, attempts: Sequence[Attempt], end: HandedBack) -> None:
        if attempts:
            self._end_all({attempt: attempt.stop_outcome or end for attempt in attempts})
            self.wake_claimer()

    async def finish_running(self, grace_s: float, stop_now: asyncio.Event) -> None:
        """Start nothing more, and wait for the running jobs. After the grace period, or once
        `stop_now` is set, stop running handlers and hand back their jobs."""
        self._accepts = False
        self._hand_back_all()
        await self.clock.wait(self._idle, stop_now, timeout_s=grace_s)
        if self._running:
            stop_s = STOP_NOW_S if stop_now.is_set() else ASYNC_STOP_S
            self.stopper.stop_running(stop_s)
            await self.clock.wait(self._idle, timeout_s=stop_s)
            self._take_in()
            self.stopper.end_running()


def _count_bytes(attempts: Sequence[Attempt]) -> int:
    return sum([len(attempt.job.payload_json) for attempt in attempts])
