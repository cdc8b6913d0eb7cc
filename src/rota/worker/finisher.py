"""Writes what attempts came to, in batches: as soon as one flush returned the next goes out, so batches grow under load and latency stays low."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING

from rota.errors import DatabaseUnavailable, UsageError
from rota.model.job import Status
from rota.model.outcome import Errored, Failure, HandedBack, Interrupted, Succeeded
from rota.model.retry import DEFAULT_RETRY
from rota.model.settle import RetryRules, Transition, settle
from rota.observe.events import (
    Event,
    JobCancelled,
    JobDead,
    JobFailed,
    JobHandedBack,
    JobSnoozed,
    JobSucceeded,
    LeaseLost,
    OutcomeRefused,
)
from rota.runtime.service import Service
from rota.store import ops
from rota.worker.held import Unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rota.observe.events import Bus
    from rota.store.link import StoreLink
    from rota.store.ops import Ending, Refused, Written
    from rota.worker.held import Held, HeldJobs

FLUSH_MAX = 1_000
"""Jobs of one statement. After a flush that failed the next is for a quarter as many, of others; so what one job does to the statement, a trigger
that takes for ever or a lock that nobody can name, is a trouble of that job only."""
LOCK_TIMEOUT_S = 2.0
"""A flush waits so long for a row that somebody else's transaction holds, or a sixth of the shortest lease; then it goes on without that row. Until
then it keeps the others of its batch locked, and nobody can renew them."""
UNTIMED_S = 10.0
"""The same, and for statements in all, behind a pooler, where the server knows no timeout of ours: then this worker has the statement cancelled."""
TRY_FOR_S = 300.0
"""How long a worker tries to write an end that the database refuses, before it leaves the job to its lease and the reaper."""
LOCKED_FOR_S = 10.0
"""A lock is worth a word when it has been in the way for so long."""
TRY_AGAIN_S = (0.25, 10.0)
"""The first and the longest pause between two of those tries."""

_SUCCEEDED = Transition("succeed", Status.SUCCEEDED)


class Finisher(Service):
    """Takes ended attempts, settles them, writes them, says what happened."""

    name = "finisher"

    def __init__(
        self,
        bus: Bus,
        link: StoreLink,
        held: HeldJobs,
        worker: str,
        release: str,
        *,
        on_suspect_over: Callable[[Held], None],
        on_nothing_held: Callable[[], None],
    ) -> None:
        super().__init__(bus)
        self.counts: Counter[str] = Counter()
        """What this worker's jobs came to, by status; and `rejected`, what it came too late to write."""
        self._link = link
        self._held = held
        self._worker = worker
        self._release = release
        self._on_suspect_over = on_suspect_over
        self._on_nothing_held = on_nothing_held
        self._ended: list[Held] = []
        self._refused: list[Held] = []
        self._flush_max = FLUSH_MAX
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def is_empty(self) -> bool:
        """Whether everything that ended is written."""
        return self._empty.is_set()

    def put(self, held: Held) -> None:
        """Take an attempt that ended."""
        self._ended.append(held)
        if len(self._ended) == 1:  # else the loop has been woken for those before it
            self._empty.clear()
            self.wake()

    async def flush(self, for_s: float) -> bool:
        """Wait until everything is written, at most so long; return whether it is."""
        self.hurry()
        try:
            async with asyncio.timeout(for_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def tick(self) -> float | None:
        """Write what has ended since the last turn."""
        batch = self._next_batch()
        if batch:
            try:
                await self._write(batch)
            except DatabaseUnavailable:
                self._keep(batch)
                raise
            self._flush_max = min(self._flush_max * 4, FLUSH_MAX)
            if not self._held:
                self._on_nothing_held()
            return 0
        if self._refused:
            return max(
                0.0,
                min(held.unwritten.again_at for held in self._refused if held.unwritten)
                - monotonic(),
            )
        self._empty.set()
        return None

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    def _next_batch(self) -> list[Held]:
        """What was refused before and is due for another try, on its own; else what has ended since."""
        if self._refused:
            now = monotonic()
            again = [
                held for held in self._refused if held.unwritten and held.unwritten.again_at <= now
            ][: self._flush_max]
            if again:
                self._refused = [held for held in self._refused if held not in again]
                return again
        batch, self._ended = self._ended[: self._flush_max], self._ended[self._flush_max :]
        return batch

    def _keep(self, batch: list[Held]) -> None:
        """Not lost: what was not confirmed is written again. If it was committed all the same, the fence refuses it, and `_settled_before` knows."""
        unwritten = [
            held
            for held in batch
            if self._held.get(held.job.id) is held and held not in self._refused
        ]
        for held in unwritten:
            held.unsure = True
        self._refused += [held for held in unwritten if held.unwritten]
        self._ended += [held for held in unwritten if not held.unwritten]
        self._flush_max = max(1, len(batch) // 4)

    async def _write(self, batch: list[Held]) -> None:
        over: list[tuple[Held, Ending]] = []
        others: list[tuple[Held, Ending]] = []
        careful = False
        for held in batch:
            if held.lost or self._held.get(held.job.id) is not held:
                self._lost(held)
                continue
            ending = self._settled(held)
            careful = careful or held.unsure or held.unwritten is not None
            (over if ending.transition.status.is_over else others).append((held, ending))
        for part, write in ((over, ops.finish), (others, ops.leave)):
            if part:
                written = await self._link.run(
                    write([ending for _, ending in part], self._release, careful=careful)
                )
                if len(written) < len(part):
                    written |= await self._settled_before(
                        (held, ending) for held, ending in part if held.job.id not in written
                    )
                self._written(part, written)

    async def _settled_before(self, missing: Iterable[tuple[Held, Ending]]) -> dict[int, Written]:
        """What an earlier flush, whose answer was lost, had committed."""
        unsure = [ending for held, ending in missing if held.unsure]
        return await self._link.run(ops.find_settled(unsure, self._worker)) if unsure else {}

    def _settled(self, held: Held) -> Ending:
        end = held.end
        if type(end) is Succeeded:
            transition = (
                _SUCCEEDED
                if end.result_json is None
                else Transition("succeed", Status.SUCCEEDED, result_json=end.result_json)
            )
        else:
            assert end is not None
            try:
                transition = settle(held.job, end, held.job_type.rules)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - what a handler raised is the user's class, and so is its retry policy
                unreadable = Errored(
                    UsageError(
                        f"what the handler came to cannot be read: {type(error).__name__} while it was looked at"
                    )
                )
                transition = settle(
                    held.job,
                    unreadable,
                    RetryRules(held.job_type.rules.max_attempts, DEFAULT_RETRY),
                )
        # The handler has been over for a moment; what the database subtracts from its now is the whole time since it began.
        return ops.Ending(
            held.job, transition, None if held.started_at is None else monotonic() - held.started_at
        )

    def _written(
        self, part: list[tuple[Held, Ending]], written: Mapping[int, Written | Refused]
    ) -> None:
        quiet = not self.bus.wants(JobSucceeded)
        for held, ending in part:
            outcome = written.get(ending.job.id)
            if outcome is None:
                self._lost(held)
                continue
            if isinstance(outcome, ops.Refused):
                self._put_off(held, outcome)
                continue
            self._forget(held)
            self.counts[outcome.status] += 1
            if not (quiet and outcome.status == Status.SUCCEEDED):
                self.bus.emit(self._event(held, ending.transition, outcome))

    def _put_off(self, held: Held, refused: Refused) -> None:
        now = monotonic()
        held.unwritten = unwritten = held.unwritten or Unwritten(since=now)
        tried_s = now - unwritten.since
        if not unwritten.is_told and (not refused.locked or tried_s >= LOCKED_FOR_S):
            unwritten.is_told = True
            self.bus.emit(
                OutcomeRefused.of(held.job, self._worker, reason=refused.why, for_s=TRY_FOR_S)
            )
        if tried_s >= TRY_FOR_S:
            self._forget(held)  # nobody renews its lease any more
            return
        unwritten.again_at = now + min(TRY_AGAIN_S[0] * 2.0**unwritten.tries, TRY_AGAIN_S[1])
        unwritten.tries += 1
        self._refused.append(held)

    def _forget(self, held: Held) -> None:
        if (
            self._held.get(held.job.id) is held
        ):  # handed back a moment ago, the job may be held again under a new claim
            del self._held[held.job.id]
        if held.is_suspect:
            self._on_suspect_over(held)

    def _lost(self, held: Held) -> None:
        self._forget(held)
        if held.started_at is None:
            return  # it had not started: nothing is discarded
        self.counts["rejected"] += 1
        self.bus.emit(LeaseLost.of(held.job, self._worker))

    def _event(self, held: Held, transition: Transition, outcome: Written) -> Event:
        of = held.job, self._worker
        failure = transition.failure or Failure("", "", "", "")
        match outcome.status:
            case Status.SUCCEEDED:
                return JobSucceeded.of(*of, ran_s=held.ran_s or 0.0)
            case Status.CANCELLED:
                return JobCancelled.of(*of, reason=transition.reason or outcome.reason)
            case Status.DEAD:
                return JobDead.of(*of, failure=failure)
            case Status.FAILED:
                return JobFailed.of(*of, failure=failure, retry_in_s=transition.delay_s or 0.0)
        if transition.verb == "snooze":
            return JobSnoozed.of(*of, run_in_s=transition.delay_s or 0.0, reason=transition.reason)
        why = (
            held.end.why
            if isinstance(held.end, HandedBack | Interrupted)
            else f"its payload does not fit this release: {failure.message}"
        )
        return JobHandedBack.of(*of, why=why)
