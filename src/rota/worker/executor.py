"""Starts attempts as slots get free, and stops those that must end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Sequence, Set
from math import inf
from typing import Protocol

from rota.declare.context import Context
from rota.errors import AttemptTimeout, RotaError, WorkerExhausted
from rota.model.awaited import has_awaited
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted
from rota.observe.events import Bus, HandlerAbandoned, JobClaimed
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store.ops import BreakerPlace
from rota.worker.attempt import Attempt
from rota.worker.breakers import EndpointReports, find_place
from rota.worker.finisher import Finisher
from rota.worker.packs import (
    Pack,
    Packer,
    count_slots,
    enter_packs,
    find_for_packs,
    leave_packs,
    sort_by_pack,
)
from rota.worker.runners import ASYNC_STOP_S, Runners
from rota.worker.slots import SlotGroup, Unit
from rota.worker.spec import WorkerSpec
from rota.worker.starter import Starter
from rota.worker.suspects import Suspects
from rota.worker.turns import Turns

STOP_NOW_S = 0.3
"""How long handlers may take to stop when the worker must stop now: a worker whose parent died ends
within a second, and its jobs must be handed back by then."""
BEGIN_MAX = 32
"""Most handlers that begin in one turn of the loop: on Python 3.12 and later each takes its first
step in it. Until the turn is over no answer of the database is seen."""
WATCH_S = 0.1
"""Seconds between checks of running jobs, which may exceed their timeout by as much."""
GOING_DOWN = HandedBack("the worker is going down")
OPEN = HandedBack("its breaker has opened")
UNTOLD = HandedBack("its breaker cannot be told of a failure", 10.0)


class Refills(Protocol):
    """Brings more jobs: the claimer."""

    def wake(self) -> None: ...


class Executor(Service):
    """Starts and stops attempts. Its turns check the time of running and of buffered jobs."""

    name = "executor"
    # Set once, before the first claim
    runners: Runners
    """Who calls the handlers, and tells `handle_end`."""
    starter: Starter
    claimer: Refills
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
        """Make one.

        Args:
            attempts: those of the worker, by job id.
            make_context: makes what a handler sees of its attempt; called from any thread.
            fail: stops the worker.
        """
        super().__init__(bus, clock)
        self.groups = spec.make_slot_groups(clock.monotonic())
        self.abandoned: dict[Attempt, Unit] = {}
        """Attempts whose handlers continue without a slot, each with what had the slot."""
        self._spec = spec
        self.attempts = attempts
        """All that are not written yet, by job id."""
        self._finisher = finisher
        self._make_context = make_context
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._group_of = {queue: group for group in self.groups for queue in group.queues}
        self._packer = Packer()
        self._turns = Turns(Suspects(clock, spec.config.buffer_s))
        self._running: set[Attempt] = set()
        """Attempts that have a slot."""
        self._left: list[Attempt] = []
        """Those that leave it at the end of this turn of the loop, …"""
        self._ended: list[Attempt] = []
        """… and those whose outcomes are passed on then."""
        self._aside: dict[Attempt, float] = {}
        """Since when each waits until its breaker is told of a failure."""
        self._watch_at = inf
        """No running attempt must be stopped or ended before."""
        self._accepts = True
        self._refills_soon = False
        self._context = contextvars.copy_context()
        """The worker's own: a refill does not run with what the handler that ended has set."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is buffered or on its way there, and nothing runs."""
        return not self._running and not any(one.waiting or one.coming for one in self.groups)

    def adopt_queue(self, queue: str) -> None:
        """Let the jobs of a queue without slots of its own use those of the first group."""
        self._group_of.setdefault(queue, self.groups[0])

    # What comes

    def expect(self, attempts: Sequence[Attempt]) -> None:
        """Count claimed jobs that `take` gets soon: the next claim is sent before. From now on they
        are the worker's."""
        by_id = {attempt.job.id: attempt for attempt in attempts}
        for id_ in by_id.keys() & self.attempts.keys():
            # Its lease expired unnoticed, and the job has come back under a new claim.
            self.lose(self.attempts[id_])
        self.attempts.update(by_id)
        for group, some in self._sort_by_group(attempts):
            slots = count_slots(some) if _has_chunks(some) else len(some)
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
        early = [one for one in attempts if one.is_suspect or one.starts_in_s]
        if early:
            self._turns.take(early, self.clock.monotonic())
            gone = set(early)
            attempts = [one for one in attempts if one not in gone]
        self._buffer(attempts)
        if early:
            self._let_in()
            self.wake()

    def note_written(self, attempt: Attempt) -> None:
        """Let the next suspects begin: the outcome of one is written, or never will be."""
        self._turns.note_written(attempt)
        self.wake()

    def _let_in(self) -> None:
        """Take those whose turns have come, before others of their priority. One that is not let in
        counts as one that ended: jobs that are handed back are claimed in batches as large as those
        of jobs that run."""
        now = self.clock.monotonic()
        able, ends = self._turns.take_due(now)
        for attempt, end in ends.items():
            self._group_of[attempt.job.queue].note_ended([attempt])
            self._end(attempt, end)
        for attempt in able:
            attempt.let_in_at = now
        if able:
            self._buffer(able, is_first=True)
        if ends and any(group.needs_claim for group in self.groups):
            self.claimer.wake()

    def _buffer(self, attempts: Sequence[Attempt], *, is_first: bool = False) -> None:
        """Put attempts into the buffer, those of one call as a pack; start what has a slot."""
        if self.reports is not None:
            attempts = self._sift(self.reports, attempts)
        packed = find_for_packs(attempts) if _has_chunks(attempts) else []
        if packed:
            gone = set(packed)
            attempts = [one for one in attempts if one not in gone]
        touched = {}
        for group, some in self._sort_by_group(attempts):
            group.push(some, is_first=is_first)
            touched[group] = True
        for pack in self._gather(packed):
            group = self._group_of[pack.job.queue]
            group.push([pack])
            touched[group] = True
        for group in touched:
            self._fill(group)
        if not self._accepts:
            self.hand_back_buffered(GOING_DOWN)
        if not self.is_idle:
            self.wake()

    def _sift(self, reports: EndpointReports, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """Set those aside whose breakers are to be told first, and hand those back whose breakers
        have opened; return the others."""
        found = reports.sift(attempts, self.clock.monotonic())
        if not found:
            return attempts
        self._set_aside([attempt for attempt, may_wait in found.items() if may_wait])
        self._hand_back([attempt for attempt, may_wait in found.items() if not may_wait], OPEN)
        return [attempt for attempt in attempts if attempt not in found]

    def _gather(self, attempts: Sequence[Attempt]) -> list[Pack]:
        """Put attempts into packs; return those that need not wait for more jobs."""
        if not attempts:
            return []
        ready, waiting = self._packer.pack(attempts, self.clock.monotonic())
        for pack in waiting:
            self._group_of[pack.job.queue].note_coming([pack], 1)
        self._note_gathered([pack for pack in ready if pack.ready_at is not None])
        return ready

    def _take_gathering(self, is_meant: Callable[[Unit], bool]) -> list[Pack]:
        """Take those that are meant of the packs that wait for more jobs."""
        packs = self._packer.take(is_meant, self.clock.monotonic())
        self._note_gathered(packs)
        return packs

    def _note_gathered(self, packs: Iterable[Pack]) -> None:
        for pack in packs:
            self._group_of[pack.job.queue].note_coming([pack], -1)

    def _sort_by_group(
        self, attempts: Sequence[Attempt]
    ) -> list[tuple[SlotGroup, Sequence[Attempt]]]:
        if len(self.groups) == 1:
            return [(self.groups[0], attempts)] if attempts else []
        by_group: dict[SlotGroup, list[Attempt]] = {}
        for attempt in attempts:
            by_group.setdefault(self._group_of[attempt.job.queue], []).append(attempt)
        return list(by_group.items())

    # Starting

    def _fill_all(self) -> None:
        for group in self.groups:
            self._fill(group)

    def _fill(self, group: SlotGroup) -> None:
        """Begin as many as there are free slots, at most BEGIN_MAX: the rest in the next turn."""
        if not group.waiting or not (startable := group.startable) or not self._accepts:
            return
        now = self.clock.monotonic()
        units = group.pop(min(startable, BEGIN_MAX))
        # All get their slots, and so have their leases renewed, before the first handler begins: it
        # may take its time.
        able = self._seat(group, units, now)
        self._begin(able, now)
        if len(units) < startable or len(able) < len(units):
            self._refill_soon()

    def _seat(self, group: SlotGroup, units: Sequence[Unit], now: float) -> Sequence[Attempt]:
        """Give a slot to each that may have one; return the attempts that may begin at once."""
        able = self._end_stopped(self._unpack(units))
        seated = able
        waiting = [one for one in able if one.must_record_start or one.results is None]
        if waiting:
            self.starter.take(waiting)
            for attempt in waiting:
                if isinstance(attempt.pack, Pack):
                    attempt.pack.waiting.add(attempt)
            gone = set(waiting)
            able = [one for one in able if one not in gone]
        Attempt.admit(seated)
        self._running.update(seated)
        group.take_slots(enter_packs(seated) if _have_packs(seated) else seated)
        if seated and self._idle.is_set():
            self._idle.clear()
            self.wake()
        return able

    def _unpack(self, units: Sequence[Unit]) -> Sequence[Attempt]:
        """Return the attempts of what leaves the buffer."""
        if not [1 for unit in units if isinstance(unit, Pack)]:
            return units  # type: ignore[return-value] # all of them are attempts
        attempts: list[Attempt] = []
        for unit in units:
            if isinstance(unit, Pack):
                self._packer.close(unit)
            attempts += _list_attempts(unit)
        return attempts

    def _end_stopped(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """End those that were stopped while they waited; return the others. Whether one is too late
        is decided at its first step."""
        stopped = {one: one.stop_outcome for one in attempts if one.stop_outcome is not None}
        if not stopped:
            return attempts
        for attempt, end in stopped.items():
            attempt.pack = None
            self._end(attempt, end)
        return [attempt for attempt in attempts if attempt not in stopped]

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts that waited in their slots, unless it is too late by now."""
        able: list[Attempt] = []
        for attempt in attempts:
            end = attempt.stop_outcome if self._accepts else GOING_DOWN
            if end is None:
                able.append(attempt)
            else:
                self.handle_end(attempt, end)
        self._begin(able, self.clock.monotonic())

    def _begin(self, attempts: Sequence[Attempt], now: float) -> None:
        """Hand admitted attempts to the runners of their types."""
        if _have_packs(attempts):
            attempts = self._wait_for_packs(attempts)
        for job_type in dict.fromkeys([attempt.job_type for attempt in attempts]):
            alike = [one for one in attempts if one.job_type is job_type]
            runner = self.runners[job_type]
            Attempt.begin(alike, runner, self._make_context)
            own_s = [one.timeout_s for one in alike if one.job.timeout_s is not None]
            shortest_s = min([job_type.options.timeout_s, *own_s])
            self._watch_at = min(self._watch_at, now + shortest_s)
            runner.begin(alike)

    def _wait_for_packs(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return those that may begin, with those of their packs that waited for them."""
        able: list[Attempt] = []
        for pack, some in sort_by_pack(attempts).items():
            if pack is None:
                able += some
            else:
                pack.waiting.difference_update(some)
                pack.able.update(some)
                able += self._take_able(pack)
        return able

    def _take_able(self, pack: Pack) -> list[Attempt]:
        """Return the attempts of a pack that begin now: none while the starter has one."""
        able = pack.take_able()
        over = [attempt for attempt in able if attempt.outcome is not None]
        for attempt in over:  # the worker goes down
            self.handle_end(attempt, GOING_DOWN)
        return [attempt for attempt in able if attempt.outcome is None] if over else able

    def _refill_soon(self) -> None:
        """Fill free slots in the loop's next turn, once for all jobs that end in this one.

        Not at once: a handler that ends in its first step would begin the next within its own.
        """
        if not self._refills_soon:
            self._refills_soon = True
            self._loop.call_soon(self._refill, context=self._context)

    def _refill(self) -> None:
        self._refills_soon = False
        self._take_in()
        self._fill_all()
        if any(group.needs_claim for group in self.groups):
            self.claimer.wake()
        if not self._running:
            self._idle.set()

    # Ending

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """Take the outcome of a handler that ended, or that will not be called."""
        attempt.task = None
        if attempt.outcome is None:  # a handler that was given up may end later
            attempt.end(end, self.clock.monotonic())
            self._ended.append(attempt)
        if self.abandoned and attempt in self.abandoned:
            del self.abandoned[attempt]
        else:
            self._left.append(attempt)
        pack = attempt.pack
        if pack is not None and isinstance(pack, Pack) and attempt in pack.waiting:
            pack.waiting.remove(attempt)
            self._begin(self._take_able(pack), self.clock.monotonic())
        if not self._refills_soon:
            self._refill_soon()

    def handle_ends(self, ends: Sequence[tuple[Attempt, End]]) -> None:
        """Do what `handle_end` does, for the attempts of one call."""
        pack = ends[0][0].pack if ends else None
        if self.abandoned or not isinstance(pack, Pack) or pack.waiting:
            for attempt, end in ends:
                self.handle_end(attempt, end)
            return
        fresh = [(attempt, end) for attempt, end in ends if attempt.outcome is None]
        Attempt.end_all(fresh, self.clock.monotonic())
        self._ended += [attempt for attempt, _ in fresh]
        self._left += [attempt for attempt, _ in ends]
        self._refill_soon()

    def _take_in(self) -> None:
        """Free the slots of the attempts that ended in this turn, and pass on their outcomes."""
        if self._left:
            left, self._left = self._left, []
            self._running.difference_update(left)
            for group, some in self._sort_by_group(left):
                group.free_slots(leave_packs(some) if _have_packs(some) else some)
        if self._ended:
            ended, self._ended = self._ended, []
            self._pass_on(ended)

    def _end(self, attempt: Attempt, end: End) -> None:
        """End an attempt without a slot, or whose handler may go on."""
        attempt.end(end, self.clock.monotonic())
        self._pass_on([attempt])

    def _pass_on(self, ended: Sequence[Attempt]) -> None:
        """Let outcomes be written."""
        if self.reports is not None and (places := self.reports.note_ended(ended)):
            self._set_aside(self._take_buffered(places))
        self._finisher.take(ended)

    # Stopping

    async def tick(self) -> float | None:
        """Check the time of running jobs, and of those that wait for something without a slot."""
        self._take_in()
        now = self.clock.monotonic()
        if now >= self._watch_at:
            self._watch_all(now)
        due = self._packer.take_due(now) if self._packer.waiting else []
        self._note_gathered(due)
        for pack in due:
            self._group_of[pack.job.queue].push([pack])
        buffer_s = self._spec.config.buffer_s
        self.hand_back_buffered(HandedBack("it waited too long for a free slot"), now - buffer_s)
        if self._aside:
            self._hand_back(self._take_aside(now - buffer_s), UNTOLD)
        if due:
            self._fill_all()
        if self._turns.waiting and self._turns.find_due_at() <= now:
            self._let_in()
        at = self._packer.find_due_at() if self._packer.waiting else inf
        if self._turns.waiting:
            at = min(at, self._turns.find_due_at())
        if self.is_idle and at == inf:
            return None
        return max(0.0, min(WATCH_S, at - now))

    async def close(self) -> None:
        """Let the threads end; end the processes."""
        self.runners.close()

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
            self.starter.hasten(attempt)
            if self._turns.hasten(attempt):
                self.wake()

    def hand_back_buffered(self, end: HandedBack, before: float = inf) -> None:
        """Hand back jobs that have waited for a slot since before a time."""
        packs = [] if self._accepts else self._take_gathering(lambda _: True)
        units = [*packs, *(unit for group in self.groups for unit in group.take_stale(before))]
        attempts = list(self._unpack(units))
        if not self._accepts:
            attempts += self._take_aside()
            attempts += self._turns.take_all()
        self._hand_back(attempts, end)

    def note_told(self, opened: Set[BreakerPlace]) -> None:
        """Let jobs begin that waited until their breakers were told; hand back those of breakers
        that have opened."""
        again = self._take_aside()
        if opened:
            again += self._take_buffered(opened)
        self._buffer(again, is_first=True)

    def _set_aside(self, attempts: Sequence[Attempt]) -> None:
        """Let attempts wait until their breakers are told; meanwhile they count as coming."""
        self._aside |= dict.fromkeys(attempts, self.clock.monotonic())
        for group, some in self._sort_by_group(attempts):
            group.note_coming(some, 1)

    def _take_aside(self, before: float = inf) -> list[Attempt]:
        """Take those that have waited like this since before a time."""
        taken = [attempt for attempt, since in self._aside.items() if since < before]
        for attempt in taken:
            del self._aside[attempt]
        for group, some in self._sort_by_group(taken):
            group.note_coming(some, -1)
        return taken

    def _take_buffered(self, places: Set[BreakerPlace]) -> list[Attempt]:
        """Take the jobs of these breakers that wait for a slot, or for others to join their
        call."""

        def is_meant(unit: Unit) -> bool:
            return any(find_place(attempt) in places for attempt in _list_attempts(unit))

        units = [*self._take_gathering(is_meant)]
        for group in self.groups:
            units += group.take(is_meant)
        attempts = list(self._unpack(units))
        for attempt in attempts:
            attempt.pack = None
        return attempts

    def _hand_back(self, attempts: Sequence[Attempt], end: HandedBack) -> None:
        for attempt in attempts:
            attempt.pack = None
            self._end(attempt, attempt.stop_outcome or end)
        if attempts:
            self.claimer.wake()

    async def finish_running(self, grace_s: float, stop_now: asyncio.Event) -> None:
        """Start nothing more, and wait for the running jobs. After the grace period, or once
        `stop_now` is set, stop those that still run and hand them back."""
        self._accepts = False
        self.hand_back_buffered(GOING_DOWN)
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
        self._take_in()
        for attempt in list(self._running):
            if not attempt.is_over:
                self._end(attempt, _find_outcome(attempt))

    async def cut_off(self) -> None:
        """Cancel the handlers that still run, without a long wait: the worker ends now."""
        handlers = self._running | self.abandoned.keys()
        found = {attempt.find_task() for attempt in handlers}
        tasks = [task for task in found if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ASYNC_STOP_S)

    def _watch_all(self, now: float) -> None:
        """Stop and end the attempts whose time is over; note when the next one's may be."""
        self._watch_at = inf
        for attempt in list(self._running):
            self._watch(attempt, now)
        for attempt in self._running:
            self._watch_at = min(self._watch_at, _find_watch_at(attempt, now))

    def _watch(self, attempt: Attempt, now: float) -> None:
        timeout_s = attempt.timeout_s
        is_called = attempt.began_at is not None and not attempt.is_between_calls
        is_late = is_called and now - (attempt.began_at or now) > timeout_s
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
            deadline = self.clock.monotonic() + stop_s
            attempt.stop(end, deadline)
            self._watch_at = min(self._watch_at, deadline)
        self._request_stop(attempt, why)

    def _request_stop(self, attempt: Attempt, why: str) -> None:
        if attempt.runner is not None:
            attempt.request_stop(why)
            attempt.runner.stop(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Give up the slot of a handler that neither ends nor stops."""
        unit = attempt.pack if isinstance(attempt.pack, Pack) else attempt
        is_known = unit in self.abandoned.values()
        attempt.abandon()
        self.abandoned[attempt] = unit
        self._left.append(attempt)
        self._refill_soon()
        if is_known:
            return  # it was one call
        if isinstance(unit, Pack):
            self._end_uncalled(unit)
        units = set(self.abandoned.values())
        count, slots = len(units), sum(group.slots for group in self.groups)
        self.bus.emit(
            HandlerAbandoned.of(attempt.job, self._spec.name, abandoned=count, slots=slots)
        )
        if count >= slots:
            types = [unit.job.job_type for unit in units]
            self._fail(WorkerExhausted(sorted(types)))

    def _end_uncalled(self, pack: Pack) -> None:
        """End the attempts of a pack that wait for a call which will not come."""
        for attempt in [one for one in pack.seated if one.is_between_calls and not one.is_over]:
            self.handle_end(attempt, Interrupted("the call before it did not end"))


def _list_attempts(unit: Unit) -> Sequence[Attempt]:
    return unit.attempts if isinstance(unit, Pack) else [unit]  # type: ignore[list-item]


def _have_packs(attempts: Sequence[Attempt]) -> bool:
    """Whether some of them share a slot."""
    return bool([1 for attempt in attempts if attempt.pack is not None])


def _has_chunks(attempts: Sequence[Attempt]) -> bool:
    """Whether a handler takes many of them in one call."""
    return bool([1 for attempt in attempts if attempt.job_type.chunk is not None])


def _count_bytes(attempts: Sequence[Attempt]) -> int:
    return sum([len(attempt.job.payload_json) for attempt in attempts])


def _find_watch_at(attempt: Attempt, now: float) -> float:
    """Return the earliest time at which a running attempt may have to be stopped or ended."""
    began_at = attempt.began_at
    until = (now if began_at is None or attempt.is_between_calls else began_at) + attempt.timeout_s
    if attempt.stop_deadline is not None and not attempt.is_over:
        return min(until, attempt.stop_deadline)
    return until


def _find_outcome(attempt: Attempt) -> End:
    """Return the outcome of an attempt whose handler still runs when the worker ends: the outcome
    of its stop, if it was stopped before."""
    if attempt.began_at is None:
        return HandedBack("it had not begun")
    if attempt.stop_outcome is None or isinstance(attempt.stop_outcome, Interrupted):
        return Interrupted("the worker went down, and the handler did not stop")
    return attempt.stop_outcome
