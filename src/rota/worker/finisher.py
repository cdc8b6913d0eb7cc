"""Writes the outcomes of attempts in batches. The next flush starts as soon as the last has ended,
so batches grow under load and latency stays low."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rota.declare.context import Context
from rota.model.awaited import NO_RESULTS
from rota.model.job import Status
from rota.model.outcome import (
    NOTHING,
    End,
    Errored,
    Failure,
    Interrupted,
    Succeeded,
    refuse_outcome,
)
from rota.model.retry import DEFAULT_RETRY
from rota.model.scrub import hide
from rota.model.settle import RetryRules, Transition, settle
from rota.observe.events import (
    Bus,
    Event,
    JobCancelled,
    JobDead,
    JobFailed,
    JobHandedBack,
    JobSnoozed,
    JobSucceeded,
    JobWaiting,
    LeaseLost,
    OutcomeRefused,
    PayloadUnread,
)
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.link import StoreLink
from rota.store.ops import Branches, Claimant, Claimed, Ending, Refused, Written
from rota.upkeep.quarantine import Quarantine
from rota.upkeep.waits import WaitSweeper
from rota.worker.attempt import Attempt, State
from rota.worker.breakers import EndpointReports
from rota.worker.completion import NotCommitted
from rota.worker.spec import WorkerSpec

Part = list[tuple[Attempt, Ending]]

logger = logging.getLogger("rota")

FLUSH_MAX = 1_000
"""Most jobs per flush; a quarter after a failure, so that one bad job cannot block the rest."""
LOCK_TIMEOUT_S = 2.0
"""Longest wait of a flush for a locked row, or a sixth of the shortest lease. The flush keeps other
rows locked meanwhile, and their leases cannot be renewed."""
FOLD_S = 0.2
"""Seconds between two counts of the ended members of batches, while other jobs run."""
FOLD_TRIES = 10
"""Counts that may leave something because a batch is locked. Then the batch folder counts it."""
UNTIMED_S = 10.0
"""Seconds that a flush waits for an answer behind a pooler, which refuses the server's timeouts."""
TRY_FOR_S = 300.0
"""How long a worker, or a drain for any reason, tries to write an outcome that the database refuses
because of the job's values. Then the reaper recovers the job."""
LOCKED_FOR_S = 10.0
TRY_AGAIN_S = (0.25, 10.0)
"""The first and the longest pause between two tries, in seconds."""


_ENDED = State.ENDED


class LooksForNext(Protocol):
    """Claims the jobs for which others have made room: the claimer."""

    def wake(self) -> None: ...
    def wake_now(self) -> None: ...
    def wake_in(self, pause_s: float) -> None: ...
    def wake_for(self, queue: str) -> None: ...
    def offer_room(self) -> tuple[Claimant, Branches] | None: ...
    def take_passed(self, claimed: Claimed, before: float) -> None: ...


class Finisher(Service):
    """Takes ended attempts, settles them, writes them, and emits their events."""

    name = "finisher"
    # Set once, before the first claim
    claimer: LooksForNext
    note_written: Callable[[Attempt], None]
    """Hears that the outcome of a suspect is written, or never will be: the executor."""
    reports: EndpointReports | None = None
    """None: no breaker is asked."""

    def __init__(
        self,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock,
        attempts: dict[int, Attempt],
        link: StoreLink,
        wait_sweeper: WaitSweeper,
        on_end: Callable[[Attempt], None] | None = None,
    ) -> None:
        """`on_end` gets each attempt before its outcome is written, and may change the outcome."""
        super().__init__(bus, clock)
        self.counts: Counter[str] = Counter()
        """Outcomes by status; `rejected`: too late to be written. The lease keeper reads it."""
        self._unread: set[str] = set()
        """Types with a payload that this release could not read."""
        self._link = link
        self._wait_sweeper = wait_sweeper
        self._on_end = on_end
        self._attempts = attempts
        self._worker = spec.name
        self._release = spec.release
        self._ended: list[Attempt] = []
        self._writing = 0
        """How many outcomes the running statement writes."""
        self._refused: Quarantine[Attempt] = Quarantine(clock, *TRY_AGAIN_S)
        self._is_drain = spec.config.drain
        self._left: tuple[float, str | None] = (0.0, None)
        """Until when the worker's row names the outcome that it gave up last, for the reaper."""
        self._flush_max = FLUSH_MAX
        self._fold_tries = 0
        """How often it still tries to count the ended members of batches."""
        self._fold_at = 0.0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def is_empty(self) -> bool:
        return self._empty.is_set()

    @property
    def unwritten(self) -> int:
        return len(self._ended) + self._writing + len(self._refused.cases)

    def list_unwritten(self) -> tuple[int, ...]:
        """Return the ids of jobs whose outcomes are known and not written."""
        return tuple(sorted({attempt.job.id for attempt in (*self._ended, *self._refused.cases)}))

    @property
    def has_uncounted(self) -> bool:
        """Whether ended members of batches may be uncounted: jobs may still follow them."""
        return self._fold_tries > 0

    def note_answer(self) -> None:
        """Note that the database answers, and which outcome it refuses all the same."""
        if self.away_since is not None:
            self.claimer.wake_now()
        super().note_answer()
        reported = (case.reported for case in self._refused.cases.values() if case.reported)
        until, left = self._left
        self.refusal = next(reported, left if self.clock.monotonic() < until else None)

    def take(self, ended: Sequence[Attempt]) -> None:
        if self._on_end is not None:
            for attempt in ended:
                self._on_end(attempt)
        if not self._ended:  # otherwise an earlier one woke the loop
            self._empty.clear()
            self.wake()
        self._ended += ended

    async def flush(self, for_s: float) -> bool:
        """Wait until everything is written, at most `for_s`; return whether it is."""
        self.wake_now()
        return await self.clock.wait(self._empty, timeout_s=for_s)

    async def tick(self) -> float | None:
        batch = self._take_batch()
        if batch:
            self._writing = len(batch)
            try:
                await self._write(batch)
            except BaseException:  # also a worker that stops names them
                self._keep(batch)
                raise
            finally:
                self._writing = 0
            self._flush_max = min(self._flush_max * 4, FLUSH_MAX)
            if self._wait_sweeper.waiting:
                self._wait_sweeper.wake()  # a job may have waited for one of these
            await self._fold_batches()
            if not self._attempts:
                self.claimer.wake()
            return 0
        if self._refused.cases:
            return self._refused.next_in_s()
        await self._fold_batches()
        if self.has_uncounted:
            return FOLD_S
        self._empty.set()
        return None

    async def close(self) -> None:
        await self._link.close()

    async def _fold_batches(self) -> None:
        """Count ended members of batches: at once if no job is left, as its batch may be over."""
        now = self.clock.monotonic()
        if self._fold_tries and (not self._attempts or now >= self._fold_at):
            self._fold_at = now + FOLD_S
            is_left = False  # of an error: the batch folder tries again
            try:
                is_left = await self._link.run(ops.fold_batches())
            finally:
                self._fold_tries = self._fold_tries - 1 if is_left else 0

    def _take_batch(self) -> list[Attempt]:
        """Return refused outcomes that are due for another try, alone; otherwise new outcomes."""
        if self._refused.cases:
            again = self._refused.find_due()[: self._flush_max]
            if again:
                return again
        batch, self._ended = self._ended[: self._flush_max], self._ended[self._flush_max :]
        return batch

    def _keep(self, batch: list[Attempt]) -> None:
        """Keep unconfirmed outcomes for another try. `_find_settled` finds committed outcomes."""
        for attempt in batch:
            if self._attempts.get(attempt.job.id) is not attempt:
                self._forget(attempt)  # a suspect would hold back all others for ever
            elif not self._refused.is_waiting(attempt):
                attempt.write_unconfirmed = True
                if attempt not in self._refused.cases:
                    self._ended.append(attempt)
        self._flush_max = max(1, len(batch) // 4)

    async def _write(self, batch: list[Attempt]) -> None:
        if [1 for attempt in batch if attempt.job.batch is not None]:
            self._fold_tries = FOLD_TRIES
        if self.reports is not None:
            batch = await self._tell_breakers(self.reports, batch)
        batch = await self._write_last_progress(batch)
        batch, careful = await self._write_plain(batch)
        over: Part = []
        others: Part = []
        refused = self._refused.cases
        for attempt in batch:
            if self._attempts.get(attempt.job.id) is not attempt or attempt.is_lost:
                self._discard(attempt)
                continue
            if attempt.completes:
                attempt.write_unconfirmed = True  # its own transaction may have written it
            ending = make_ending(attempt, self.clock.monotonic())
            careful = careful or attempt.write_unconfirmed or attempt in refused
            (over if ending.transition.status.is_over else others).append((attempt, ending))
        for part, write in ((over, ops.finish), (others, ops.leave)):
            if part:
                endings = [ending for _, ending in part]
                written = await self._link.run(write(endings, self._release, careful=careful))
                if len(written) < len(part):
                    missing = [pair for pair in part if pair[0].job.id not in written]
                    settled = await self._find_settled(missing)
                    await self._keep_results(missing, settled)
                    written |= settled
                await self._free_places(part, written)
                self._take_in(part, written)

    async def _tell_breakers(self, reports: EndpointReports, batch: list[Attempt]) -> list[Attempt]:
        """Tell breakers how their jobs ended; return the attempts that may end."""
        told, why = await reports.tell(batch)
        waiting = {attempt for attempt in told if not attempt.is_lost}
        for attempt in waiting:
            self._put_off(attempt, why)
        return [attempt for attempt in batch if attempt not in waiting] if waiting else batch

    async def _write_last_progress(self, batch: list[Attempt]) -> list[Attempt]:
        """Write unwritten reports of progress; return the attempts that may end. The others' rows
        are locked, or the lease keeper is just writing an earlier report."""
        news = [
            (attempt, context)
            for attempt in batch
            if (context := attempt.context) is not None and context._has_news
        ]
        if not news:
            return batch
        tried = self._refused.cases
        left = {own for own, context in news if context._is_being_stored and own not in tried}
        mine = [(attempt, context) for attempt, context in news if attempt not in left]
        written = await write_progress(self._link, mine)
        left |= {attempt for attempt, _ in mine if written.get(attempt.job.id) is False}
        for attempt in left:
            if not attempt.is_lost:
                self._put_off(attempt, ops.LOCKED)
        return [attempt for attempt in batch if attempt not in left or attempt.is_lost]

    async def _write_plain(self, batch: list[Attempt]) -> tuple[list[Attempt], bool]:
        """Write the plain successes, without an object for each: nearly all attempts are plain.
        Return the others, and whether the database refused these, which then are written with
        care."""
        attempts, refused = self._attempts, self._refused.cases
        plain = [
            attempt
            for attempt in batch
            if attempt.outcome is NOTHING
            and attempt.state is _ENDED
            and not (attempt.completes or attempt.write_unconfirmed)
            and attempts.get(attempt.job.id) is attempt
            and attempt not in refused
        ]
        if not plain:
            return batch, False
        now = self.clock.monotonic()
        claims = [
            (attempt.job.id, attempt.job.claims, now - (attempt.began_at or now))
            for attempt in plain
        ]
        finished = await self._finish_plain(plain, claims, now)
        if finished is None:
            return batch, True
        written = [attempt for attempt in plain if attempt.job.id in finished]
        for attempt in written:
            if attempts.get(attempt.job.id) is attempt:
                del attempts[attempt.job.id]
            if attempt.is_suspect:
                self.note_written(attempt)
        self.counts[Status.SUCCEEDED] += len(written)
        if self.bus.wants(JobSucceeded):
            for attempt in written:
                self.bus.emit(JobSucceeded.of(attempt.job, self._worker, ran_s=attempt.ran_s))
        if len(written) == len(batch):
            return [], False
        gone = set(written)
        return [attempt for attempt in batch if attempt not in gone], False

    async def _finish_plain(
        self, plain: Sequence[Attempt], claims: Sequence[tuple[int, int, float]], now: float
    ) -> set[int] | None:
        """Write plain successes, and take the next jobs of their lanes. Return the written jobs;
        None: the database refused one."""
        left = [
            attempt for attempt in plain if attempt.is_capped or attempt.job.group_key is not None
        ]
        room = self.claimer.offer_room() if left else None
        if room is None:
            write = ops.finish_plain(claims, self._release, frees_places=bool(left))
            finished = await self._link.run(write)
            if finished:
                self._look_for_next(left)
            return finished
        passed = await self._link.run(ops.finish_and_pass(claims, *room))
        if passed is None:
            return None
        finished, claimed = passed
        if claimed.jobs:
            self.claimer.take_passed(claimed, now)
        if len(claimed.jobs) < len(left):
            self._look_for_next(left)
        return finished

    async def _find_settled(self, missing: Part) -> dict[int, Written]:
        """Return outcomes that an earlier flush, whose answer was lost, had committed."""
        unsure = [ending for attempt, ending in missing if attempt.write_unconfirmed]
        return await self._link.run(ops.find_settled(unsure, self._worker)) if unsure else {}

    async def _keep_results(self, missing: Part, settled: Mapping[int, Written]) -> None:
        """Write what handlers returned after the commits that finished their jobs."""
        results = [
            (attempt.job.id, attempt.job.claims, result_json)
            for attempt, _ in missing
            if attempt.job.id in settled and (result_json := find_late_result(attempt)) is not None
        ]
        refused = await self._link.run(ops.keep_results(results)) if results else {}
        for job, why in refused.items():
            logger.warning("job %s: its result is not kept: %s", job, why)

    async def _free_places(self, part: Part, written: Mapping[int, Written | Refused]) -> None:
        """Look for jobs that may run now because these have left their lanes and limits."""
        left = [attempt for attempt, _ in part if attempt.frees_place]
        if not left:
            return
        # These ended in transactions of their handlers, which lock no lanes.
        completed = [
            (attempt.job, attempt.job_type.name)
            for attempt in left
            if attempt.completes and isinstance(written.get(attempt.job.id), ops.Written)
        ]
        if completed:
            await self._link.run(ops.free_places(completed))
        self._look_for_next(left)

    def _look_for_next(self, left: Sequence[Attempt]) -> None:
        for queue in {attempt.job.queue for attempt in left}:
            self.claimer.wake_for(queue)

    def _take_in(self, part: Part, written: Mapping[int, Written | Refused]) -> None:
        quiet = not self.bus.wants(JobSucceeded)
        for attempt, ending in part:
            outcome = written.get(ending.job.id)
            if outcome is None:
                self._discard(attempt)
                continue
            if isinstance(outcome, ops.Refused):
                self._put_off(attempt, outcome)
                continue
            self._forget(attempt)
            self.counts[outcome.status] += 1
            if attempt.completes:
                _tell_late_failure(attempt, ending.transition, outcome)
            if ending.transition.delay_s is not None:
                self.claimer.wake_in(ending.transition.delay_s)
            if outcome.status == Status.WAITING:
                self._wait_sweeper.note_wait()
            if not (quiet and outcome.status == Status.SUCCEEDED):
                self.bus.emit(self._make_event(attempt, ending.transition, outcome))
            if ending.transition.payload_mismatch and outcome.status == Status.QUEUED:
                self._warn_of_type(attempt, ending.transition)

    def _warn_of_type(self, attempt: Attempt, transition: Transition) -> None:
        """Warn once that this release cannot read the payloads of a type."""
        if attempt.job.job_type not in self._unread and transition.failure is not None:
            self._unread.add(attempt.job.job_type)
            reason = transition.failure.message
            self.bus.emit(PayloadUnread.of(attempt.job, self._worker, reason=reason))

    def _put_off(self, attempt: Attempt, refused: Refused) -> None:
        case = self._refused.put(attempt)
        tried_s = self.clock.monotonic() - case.since
        for_s = TRY_FOR_S if refused.of_row or self._is_drain else None
        if not case.reported and (not refused.locked or tried_s >= LOCKED_FOR_S):
            case.reported = f"the outcome of job {attempt.job.id} is refused: {refused.why}"
            self.bus.emit(
                OutcomeRefused.of(attempt.job, self._worker, reason=refused.why, for_s=for_s)
            )
        if for_s is not None and tried_s >= for_s:
            self._left = (self.clock.monotonic() + 2 * attempt.lease_s, case.reported)
            self._forget(attempt)  # its lease is no longer renewed

    def _forget(self, attempt: Attempt) -> None:
        if self._refused.cases:
            self._refused.release(attempt)
        job = attempt.job.id
        # A job just returned to the queue may be here again under a new claim.
        if self._attempts.get(job) is attempt:
            del self._attempts[job]
        attempt.forget_error()
        if self.reports is not None:
            self.reports.forget(attempt)
        if attempt.is_suspect:
            self.note_written(attempt)

    def _discard(self, attempt: Attempt) -> None:
        """Drop an outcome that may not be written: another claim has the job."""
        attempt.lose()
        self._forget(attempt)
        if attempt.began_at is None:
            return  # nothing is discarded
        self.counts["rejected"] += 1
        self.bus.emit(LeaseLost.of(attempt.job, self._worker))

    def _make_event(self, attempt: Attempt, transition: Transition, outcome: Written) -> Event:
        of = attempt.job, self._worker
        failure = transition.failure or Failure("", "", "", "")
        ran_s = None if attempt.began_at is None else attempt.ran_s
        match outcome.status:
            case Status.SUCCEEDED:
                return JobSucceeded.of(*of, ran_s=attempt.ran_s)
            case Status.CANCELLED:
                return JobCancelled.of(*of, reason=transition.reason or outcome.reason)
            case Status.DEAD:
                return JobDead.of(*of, failure=failure, ran_s=ran_s)
            case Status.FAILED:
                retry_in_s = transition.delay_s or 0.0
                return JobFailed.of(*of, failure=failure, retry_in_s=retry_in_s, ran_s=ran_s)
        if transition.verb == "snooze":
            return JobSnoozed.of(*of, run_in_s=transition.delay_s or 0.0, reason=transition.reason)
        if transition.awaits is not None:
            return JobWaiting.of(*of, awaited=transition.awaits.jobs)
        why, was_stopped = transition.reason, False
        if isinstance(attempt.outcome, Interrupted):
            why, was_stopped = attempt.outcome.why, True
        elif why is None:
            why = f"its payload does not fit this release: {failure.message}"
        return JobHandedBack.of(
            *of,
            why=why,
            run_in_s=transition.delay_s,
            waits_for=transition.waits_for,
            was_stopped=was_stopped,
        )


async def write_progress(
    link: StoreLink, reported: Sequence[tuple[Attempt, Context]]
) -> dict[int, bool | None]:
    """Write the last reports of handlers. Return the jobs that are held, each with True if its
    report is written, False if its row is locked, and None if the database refuses the report."""
    told = [context._progress for _, context in reported]
    jobs = [(attempt.job, context) for attempt, context in reported]
    reports = [(job.id, job.claims, context._encode_progress()) for job, context in jobs]
    written = await link.run(ops.progress(reports)) if reports else {}
    for (attempt, context), report in zip(reported, told, strict=True):
        if written.get(attempt.job.id):
            context._stored = report
    return written


def make_ending(attempt: Attempt, now: float) -> Ending:
    """Settle an attempt that ended; return what to write of it."""
    end = attempt.outcome
    assert end is not None
    if attempt.completes and isinstance(end, Succeeded):
        # If this is wrong, the job is gone, and its success is found.
        end = Errored(NotCommitted())
    if isinstance(end, Succeeded):
        transition = _settle(attempt, end)  # it has no text that could be masked
    else:
        with hide(attempt.hidden):
            transition = _settle(attempt, end)
    began_at = attempt.began_at
    # Until now, not until the handler ended: the database subtracts it from its own now.
    ran_s = None if began_at is None else now - began_at
    ended_s_ago = now - (attempt.ended_at or now)
    return ops.Ending(
        attempt.job, transition, ran_s, attempt.completes, attempt.frees_place, ended_s_ago
    )


def _settle(attempt: Attempt, end: End) -> Transition:
    rules = attempt.job_type.rules
    try:
        return settle(
            attempt.job,
            end,
            rules,
            must_record_start=attempt.must_record_start and not attempt.shares_turn,
            results=(attempt.results or NO_RESULTS).values(),
            limit=None if attempt.start is None else attempt.start.waits_for,
        )
    except BaseException as error:  # noqa: BLE001 - the user's classes
        rules = RetryRules(rules.max_attempts, DEFAULT_RETRY)
        return settle(attempt.job, refuse_outcome(error), rules)


def find_late_result(attempt: Attempt) -> str | None:
    """Return what a handler returned that may have finished its job itself before."""
    end = attempt.outcome
    return end.result_json if attempt.completes and isinstance(end, Succeeded) else None


def _tell_late_failure(attempt: Attempt, transition: Transition, outcome: Written) -> None:
    """Log what a handler raised after the commit that finished its job."""
    failure = transition.failure
    if outcome.status != Status.SUCCEEDED or failure is None:
        return
    if isinstance(attempt.outcome, Succeeded):
        return
    logger.warning(
        "job %s %s has succeeded with the commit of its transaction; then its handler failed: %s: "
        "%s",
        attempt.job.id, attempt.job.job_type, failure.error_type, failure.message,
    )  # fmt: skip
