"""Single jobs, one after the other, in a worker without maintenance: `rota run`, `rota.testing`.
Its parts are those of any worker, except for what a `ByHand` says."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from rota.errors import DatabaseUnavailable
from rota.model.outcome import Cancel, End, Errored, HandedBack, Interrupted
from rota.observe.events import Bus
from rota.runtime.clock import Clock
from rota.runtime.service import Service
from rota.store import ops
from rota.store.driver import Operation
from rota.store.link import StoreLink
from rota.store.ops import Claimed
from rota.worker.attempt import Attempt, make_attempts
from rota.worker.executor import Executor
from rota.worker.runners import Threads
from rota.worker.spec import WorkerSpec

UNTIMED_S = 10 * 365 * 86_400.0
"""How long a handler may run while a person watches it, maybe in a debugger."""

Pick = Callable[[], Operation[int | None]]
"""Returns the id of the next job; None: there is no other."""


def pick_one(id_: int) -> Pick:
    """Return a function that picks this job, once."""
    ids = [id_]

    def pick() -> Operation[int | None]:
        yield from ()
        return ids.pop() if ids else None

    return pick


@dataclass(slots=True)
class ByHand:
    """What a worker does in another way for jobs that it runs one by one."""

    pick: Pick
    records: bool = True
    """Whether outcomes are written; otherwise the jobs are handed back and not charged."""
    here: MainThread | None = None
    """The thread for plain handlers. With it no handler has a process of its own or a timeout."""
    copies_by: str | None = None
    """Who runs a copy of the picked job, which stays dead; None: the job itself runs."""
    ended: list[tuple[Attempt, End]] = field(default_factory=list)
    """The attempts in order, each with how its handler ended, recorded or not."""

    def note_end(self, attempt: Attempt) -> None:
        """Keep how an attempt ended; hand back its job if that is not to be recorded."""
        end = attempt.outcome
        assert end is not None
        self.ended.append((attempt, end))
        if self.copies_by is not None:
            attempt.outcome = Cancel("a copy of a dead job, which rota run has run")
        elif not self.records or is_interrupt(end):
            attempt.outcome = HandedBack("it was run by hand, and is not recorded")


class Picker(Service):
    """Claims a picked job once the outcome before is written. It takes the place of the claimer."""

    name = "claimer"

    def __init__(
        self,
        spec: WorkerSpec,
        bus: Bus,
        clock: Clock,
        link: StoreLink,
        executor: Executor,
        hand: ByHand,
    ) -> None:
        super().__init__(bus, clock)
        self.claimed = 0
        self.failure: DatabaseUnavailable | None = None
        self.workers = 1
        self.paused: frozenset[str] = frozenset()
        self._spec = spec
        self._link = link
        self._executor = executor
        self._hand = hand
        self._claimant = spec.make_claimant()

    def wake_for(self, queue: str) -> None:
        """Do nothing: a job of this queue was committed, not picked."""

    def offer_room(self) -> None:
        """Return no room: the next job of a lane was not picked."""

    def take_passed(self, claimed: Claimed, before: float) -> None:
        """Do nothing: without room a flush claims no job."""

    async def tick(self) -> float | None:
        if self._executor.attempts:
            return None  # the finisher wakes the claimer when it has written the outcome
        id_ = await self._link.run(self._hand.pick())
        if id_ is None:
            self.stop()
            return 0
        before = self.clock.monotonic()
        claimed = await self._claim(id_)
        [job] = claimed.jobs
        self._executor.adopt_queue(job.queue)
        if self._hand.here is not None:
            claimed.jobs[:] = [msgspec.structs.replace(job, timeout_s=UNTIMED_S)]
        attempts = make_attempts(claimed, self._spec.types, self._spec.list_leases_s(), before)
        self.claimed += 1
        self._executor.expect(attempts)
        self._executor.take(attempts)
        return None

    async def _claim(self, id_: int) -> Claimed:
        by = self._hand.copies_by
        if by is None:
            return await self._link.run(ops.claim_one(self._claimant, id_))
        return await self._link.run(ops.claim_copy(self._claimant, id_, by), atomic=True)

    async def close(self) -> None:
        await self._link.close()


def is_interrupt(end: End) -> bool:
    if isinstance(end, Errored):
        return isinstance(end.error, KeyboardInterrupt)
    return isinstance(end, Interrupted)


class MainThread(Threads):
    """Runs plain handlers in the thread that serves it, where debuggers and Ctrl-C work."""

    def __init__(self) -> None:
        super().__init__("rota-handler")
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()

    def submit(self, call: Callable[[], object]) -> None:
        self._calls.put(call)

    def serve(self) -> None:
        """Run the calls in the calling thread, until `close`."""
        while (call := self._calls.get()) is not None:
            call()

    def close(self) -> None:
        self._calls.put(None)
