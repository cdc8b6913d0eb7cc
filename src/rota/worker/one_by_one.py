"""A worker that runs single jobs, one after the other, as they are picked by their ids.

It does no upkeep. `rota run` and `rota.testing` use it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from rota.model.outcome import Errored, HandedBack, Interrupted
from rota.store import ops
from rota.store.driver import Operation
from rota.worker.claimer import Claimer
from rota.worker.finisher import Finisher
from rota.worker.runners import Runners, Threads
from rota.worker.worker import Worker

if TYPE_CHECKING:
    from rota.model.outcome import End
    from rota.observe.events import Bus
    from rota.store.db import Database
    from rota.store.link import StoreLink
    from rota.worker.attempt import Attempt
    from rota.worker.parts import Parts
    from rota.worker.processes import Processes
    from rota.worker.spec import WorkerSpec

UNTIMED_S = 10 * 365 * 86_400.0
"""How long a handler may run that a person watches, maybe in a debugger."""

Pick = Callable[[], Operation[int | None]]
"""Returns the id of the next job; None: that was the last one."""


def pick_one(id_: int) -> Pick:
    """Return what picks this job, once."""
    ids = [id_]

    def pick() -> Operation[int | None]:
        yield from ()
        return ids.pop() if ids else None

    return pick


class OneByOneWorker(Worker):
    """Runs the jobs that are picked, through the real executor."""

    does_upkeep = False

    def __init__(
        self,
        database: Database,
        spec: WorkerSpec,
        bus: Bus,
        pick: Pick,
        *,
        records: bool = True,
        here: MainThread | None = None,
    ) -> None:
        """Make one.

        Args:
            records: whether outcomes are written; otherwise the jobs are handed back uncharged.
            here: the thread that plain handlers run in. With it no handler runs in a process of
                its own, and none has a timeout.
        """
        super().__init__(database, spec, bus)
        self.pick = pick
        self.records = records
        self.here = here
        self.ended: list[tuple[Attempt, End]] = []
        """The attempts in order, each with what its handler came to, recorded or not."""

    def make_runners(self, processes: Processes) -> Runners:
        """Make what calls the handlers."""
        if self.here is None:
            return Runners(self.parts, processes)
        return Runners(self.parts, None, self.here)

    def make_claimer(self, link: StoreLink, *, listens: bool) -> Claimer:
        """Make what claims the jobs."""
        return _OneByOneClaimer(self.parts, link, self)

    def make_finisher(self, link: StoreLink) -> Finisher:
        """Make what writes the outcomes, or hands the jobs back."""
        return _OneByOneFinisher(self.parts, link, self)


class _OneByOneClaimer(Claimer):
    """Claims a job when the outcome of the one before is written."""

    def __init__(self, parts: Parts, link: StoreLink, worker: OneByOneWorker) -> None:
        super().__init__(parts, link, listens=False)
        self._owner = worker

    async def tick(self) -> float | None:
        """Claim the next job; end if there is none."""
        if self._parts.attempts:
            return None  # the finisher wakes the claimer when it has written the outcome
        id_ = await self._link.run(self._owner.pick())
        if id_ is None:
            self.stop()
            return 0
        before = self.clock.monotonic()
        claimed = await self._link.run(ops.claim_one(self._claimant, id_))
        [job] = claimed.jobs
        self._parts.executor.adopt_queue(job.queue)
        if self._owner.here is not None:
            claimed.jobs[:] = [msgspec.structs.replace(job, timeout_s=UNTIMED_S)]
        self._hand_over(claimed, before)
        return None


class _OneByOneFinisher(Finisher):
    """Keeps how each attempt ended, and hands the job back if that is not to be recorded."""

    def __init__(self, parts: Parts, link: StoreLink, worker: OneByOneWorker) -> None:
        super().__init__(parts, link)
        self._owner = worker

    def add(self, attempt: Attempt) -> None:
        """Take an attempt that ended."""
        worker, end = self._owner, attempt.outcome
        assert end is not None
        worker.ended.append((attempt, end))
        if not worker.records or is_interrupt(end):
            attempt.outcome = HandedBack("it was run by hand, and is not recorded")
        super().add(attempt)


def is_interrupt(end: End) -> bool:
    """Whether a person ended the handler with Ctrl-C."""
    if isinstance(end, Errored):
        return isinstance(end.error, KeyboardInterrupt)
    return isinstance(end, Interrupted)


class MainThread(Threads):
    """Runs plain handlers in the thread that serves it, where debuggers and Ctrl-C work."""

    def __init__(self) -> None:
        super().__init__("rota-handler")
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()

    def submit(self, call: Callable[[], object]) -> None:
        """Let the serving thread run a call."""
        self._calls.put(call)

    def serve(self) -> None:
        """Run the calls in the calling thread, until it is closed."""
        while (call := self._calls.get()) is not None:
            call()

    def close(self) -> None:
        """End `serve`."""
        self._calls.put(None)
