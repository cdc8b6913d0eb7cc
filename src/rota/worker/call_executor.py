"""The executor of a worker that knows types whose handlers take many jobs in one call."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from rota.model.failure import error_type, message
from rota.model.outcome import NOTHING, Errored, HandedBack
from rota.worker.call import Call, find_own_end
from rota.worker.executor import Executor
from rota.worker.gates import Wait
from rota.worker.gatherer import Gatherer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from rota.declare.context import Completes
    from rota.declare.effect import KeepsEffects
    from rota.declare.job_type import JobType
    from rota.model.outcome import End
    from rota.worker.attempt import Attempt
    from rota.worker.gates import Answers
    from rota.worker.parts import Parts
    from rota.worker.runners import Runners
    from rota.worker.slots import SlotGroup

logger = logging.getLogger("rota")

_NOBODY_LEFT = "all of its jobs were cancelled or lost"


class CallExecutor(Executor):
    """Gathers attempts into calls.

    A call goes the way of an attempt: it waits in the buffer, has a slot, runs and is stopped. The
    gates are asked for each of its attempts, and each ends by itself.
    """

    def __init__(
        self,
        parts: Parts,
        groups: list[SlotGroup],
        runners: Runners,
        completer: Completes | None = None,
        effects: KeepsEffects | None = None,
    ) -> None:
        super().__init__(parts, groups, runners, completer, effects)
        self._gatherer = Gatherer()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is buffered, nothing is gathered and nothing runs."""
        return self._gatherer.is_empty and super().is_idle

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Take claimed jobs; start as many as there are free slots."""
        claimed = list(attempts)
        self._note_claimed(claimed)
        gathers = [one for one in claimed if _is_for_call(one) and not self._is_asked_for(one)]
        touched = self._gather(gathers)
        super().add(claimed if not gathers else [one for one in claimed if one.call is None])
        for group in touched:
            self._fill(group)
        if not self.is_idle:
            self.wake()

    async def tick(self) -> float | None:
        """Check the time of calls that wait for more jobs, and all that any executor does."""
        now = self.clock.monotonic()
        for group, call in self._gatherer.take_due(now):
            group.push(call)
        pauses = [await super().tick(), self._gatherer.find_pause_s(now)]
        return min((pause_s for pause_s in pauses if pause_s is not None), default=None)

    # Gathering

    def _note_claimed(self, claimed: list[Attempt]) -> None:
        """Note how many slots claimed jobs need, so that the next claim brings enough for all."""
        alike = Counter(
            (one.job.queue, one.job_type, one.job.group_key is not None) for one in claimed
        )
        slots: dict[SlotGroup, float] = {}
        jobs: dict[SlotGroup, int] = {}
        for (queue, job_type, has_lane), count in alike.items():
            group = self._group_of[queue]
            places = _count_places(job_type, has_lane=has_lane)
            slots[group] = slots.get(group, 0.0) + count / places
            jobs[group] = jobs.get(group, 0) + count
        for group, count in jobs.items():
            group.note_claimed(count, slots[group])

    def _is_asked_for(self, attempt: Attempt) -> bool:
        """Whether the gatekeeper has to let it in first."""
        return self._gatekeeper is not None and attempt.job_type.has_gates

    def _gather(self, attempts: Iterable[Attempt]) -> set[SlotGroup]:
        """Put attempts into calls, and calls that are ready into the buffer; return where."""
        alike: dict[Hashable, list[Attempt]] = {}
        for attempt in attempts:
            job = attempt.job
            key = attempt.job_type, job.queue, job.group_key, job.priority
            alike.setdefault(key, []).append(attempt)
        touched: set[SlotGroup] = set()
        for of_one_kind in alike.values():
            group = self._group_of[of_one_kind[0].job.queue]
            touched.add(group)
            for call in self._gatherer.add(group, of_one_kind, self.clock.monotonic()):
                group.push(call)
        return touched

    def _push_first(self, group: SlotGroup, fresh: list[Attempt]) -> None:
        super()._push_first(group, [one for one in fresh if not _is_for_call(one)])
        self._gather(one for one in fresh if _is_for_call(one))

    def hand_back_buffered(self, why: str, claimed_before: float = float("inf")) -> None:
        """Hand back jobs that have not started."""
        if not self._accepts:
            for call in self._gatherer.take_all(self.clock.monotonic()):
                self._end(call, HandedBack(why))
        super().hand_back_buffered(why, claimed_before)

    # Starting

    def _pass_gates(self, group: SlotGroup, batch: list[Attempt], now: float) -> list[Attempt]:
        """Ask the gates for the attempts of each call; return what may begin now."""
        attempts: list[Attempt] = []
        for unit in batch:
            if isinstance(unit, Call):
                self._gatherer.close(group, unit)
                attempts += unit.attempts
            else:
                attempts.append(unit)
        passed = set(super()._pass_gates(group, attempts, now))
        able: list[Attempt] = []
        for unit in batch:
            if isinstance(unit, Call):
                unit.keep(passed)
            if unit in passed or (isinstance(unit, Call) and unit.attempts):
                able.append(unit)
        return able

    def _hold_back(self, group: SlotGroup, answers: Answers) -> None:
        others: dict[Attempt, Wait | End] = {}
        for attempt, answer in answers.items():
            call = attempt.call
            if call is None:
                others[attempt] = answer
            elif isinstance(answer, Wait) and answer.in_slot:
                call.waiting.add(attempt)
            else:
                attempt.call = None  # from here on it goes its own way
                others[attempt] = (
                    answer if isinstance(answer, Wait) else find_own_end(attempt, answer)
                )
        super()._hold_back(group, others)

    def _admit(self, group: SlotGroup, attempt: Attempt) -> dict[str, Any] | None:
        if not isinstance(attempt, Call):
            return super()._admit(group, attempt)
        self._take_slot(group, attempt)
        return {}  # read when the call begins, of those that are left then

    def _begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        if isinstance(attempt, Call):
            self._begin_call(attempt)
        else:
            super()._begin(attempt, arguments)

    def begin(self, attempt: Attempt) -> None:
        """Begin an admitted attempt that waited in its slot, or the call that waited for it."""
        call = attempt.call
        if call is None:
            super().begin(attempt)
        elif (answer := self._hold_in_slot(attempt)) is None:
            call.waiting.discard(attempt)
            self._begin_call(call)
        elif not isinstance(answer, Wait):
            self.handle_end(attempt, answer)

    def _begin_call(self, call: Call) -> None:
        """Call the handler with the jobs that are left, once no gate holds one back."""
        if call.waiting:
            return
        if not call.is_over:
            call.items = self._read_items(call)
        if call.is_over or not call.attempts:
            if not call.is_over:
                call.end(NOTHING, self.clock.monotonic())
            self._free_slot(call)
            return
        call.context = call.make_context(self._parts.spec.name, self.state, self._make_context)
        assert call.job_type.item_codec is not None
        self._call_handler(call, {call.job_type.item_codec.parameter: call.items})

    def _read_items(self, call: Call) -> list[Any]:
        """Return the items of a call; end those of its attempts that cannot be read."""
        attempts = [attempt for attempt in call.attempts if not attempt.is_over]
        found = call.job_type.read_items([attempt.job for attempt in attempts])
        if found is not None:
            call.attempts = attempts
            items, unknown = found
            if unknown:
                self._tell_unknown(call.job_type, unknown)
            return items
        return self._read_each_item(call, attempts)

    def _read_each_item(self, call: Call, left: list[Attempt]) -> list[Any]:
        items, attempts = [], []
        for attempt in left:
            read = attempt.read_item()
            if not isinstance(read, tuple):
                self._end(attempt, read)
                continue
            item, unknown = read
            if unknown:
                self._tell_unknown(attempt.job_type, unknown)
            items.append(item)
            attempts.append(attempt)
        call.attempts = attempts
        return items

    # Stopping

    def _request_stop(self, attempt: Attempt, why: str) -> None:
        call = attempt.call
        if call is None:
            super()._request_stop(attempt, why)
            return
        if attempt.context is not None:
            attempt.context.request_stop(why)
        if call.runner is not None and not call.is_over and not call.find_live():
            self._stop(call, _NOBODY_LEFT, HandedBack(_NOBODY_LEFT))

    # Ending

    def handle_end(self, attempt: Attempt, end: End) -> None:
        """Take the outcome of a handler that ended, or of an attempt that its call goes without."""
        call = attempt.call
        if call is None:
            super().handle_end(attempt, end)
            return
        if attempt.outcome is None:
            self._end(attempt, end)
        call.waiting.discard(attempt)
        self._begin_call(call)

    def _end(self, attempt: Attempt, end: End) -> None:
        if not isinstance(attempt, Call):
            super()._end(attempt, end)
            return
        now = self.clock.monotonic()
        group = self._group_of[attempt.job.queue]
        self._gatherer.close(group, attempt)  # it may be handed back before it had a slot
        if self._accepts and attempt.must_split(end):
            _tell_split(attempt, end.error if isinstance(end, Errored) else end)
            group.push_first(attempt.split(now))
        attempt.end(NOTHING, now)
        for one, its_end in attempt.sort_ends(end):
            super()._end(one, its_end)


def _is_for_call(attempt: Attempt) -> bool:
    """Whether an attempt is called together with others.

    A suspect may kill its worker, so it is called alone; and so is the last attempt of a job that
    has several: no job dies of another one's error.
    """
    if attempt.job_type.chunk is None or attempt.is_suspect:
        return False
    return attempt.max_attempts == 1 or attempt.job.attempts < attempt.max_attempts


def _count_places(job_type: JobType[..., ..., Any], *, has_lane: bool) -> int:
    """Return how many jobs of a type one slot can run at once."""
    if job_type.chunk is None:
        return 1
    if not has_lane:
        return job_type.chunk.jobs_max
    return min(job_type.chunk.jobs_max, job_type.options.lane_capacity)


def _tell_split(call: Call, raised: object) -> None:
    assert isinstance(raised, BaseException)
    level = logging.DEBUG if call.is_part else logging.WARNING
    logger.log(
        level,
        "job type %s: a call of %d jobs failed with %s: %s. Each half is called again, to find the "
        "job at fault",
        call.job_type.name, len(call.called), error_type(raised), message(raised),
    )  # fmt: skip
