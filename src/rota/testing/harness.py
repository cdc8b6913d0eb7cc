"""An App on the database or the connection of a test, and the questions of the test."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Self, TypeVar

from rota.app import App
from rota.client.base import LIST_MAX, check_id
from rota.client.both import awaitable, both
from rota.client.carry import carry_meta
from rota.declare.config import WorkerConfig
from rota.declare.job_type import JobType, NewJob
from rota.declare.url import make_plain
from rota.errors import UsageError
from rota.model.bounds import check_integer
from rota.model.job import Job
from rota.model.units import Duration, plural
from rota.observe.events import Bus
from rota.runtime.loop import run_alone
from rota.store import ops
from rota.store.db import Database
from rota.store.driver import Operation, Query
from rota.testing import attempt, twice
from rota.testing.bound import BoundDatabase, LoopFreeDatabase
from rota.testing.drained import Drained
from rota.testing.expected import ExpectedJob, find_jobs
from rota.testing.matching import PENDING, Wanted, explain_jobs
from rota.testing.moving_clock import MovingClock
from rota.testing.recording import make_context
from rota.worker.by_hand import ByHand, Pick, pick_one
from rota.worker.finisher import make_ending
from rota.worker.spec import WorkerSpec
from rota.worker.summary import Performed, find_error
from rota.worker.worker import Worker

T = TypeVar("T")
AnyType = JobType[..., ..., Any]

logger = logging.getLogger("rota")

LEFT_SHOWN_MAX = 10
"""Most jobs that a message about left jobs lists."""


class Harness:
    """An App in a test. Each call has an async twin, whose name begins with `a`.

    While the harness is open, the App uses the test's database, or the test's connection. On a
    connection all that Rota does, also `app.enqueue(…)` and a whole attempt, happens in its open
    transaction, and is gone after the test's rollback.

    Args:
        app: the App.
        url: the test's database, migrated. Defaults to the App's own.
        connection: the test's connection, in an open transaction. Defaults to the connection of
            Django's TestCase for the App of `rota.integrations.django`, otherwise to none.
        state: what `ctx.state` is in attempts on the test's connection, where the App's lifespan is
            not entered. Defaults to None.

    Raises:
        UsageError: url and connection are both given, Rota does not know the connection, no
            transaction is open on it, or it is async and no loop runs here; or another Harness of
            the App is open on another connection.
    """

    def __init__(
        self, app: App, url: str | None = None, *, connection: Any = None, state: Any = None
    ) -> None:
        if url is not None and connection is not None:
            raise UsageError("give a Harness a url or a connection, not both")
        self.app = app
        """The App under test."""
        self.state = state
        """The `ctx.state` of attempts on the test's connection."""
        if url is None and connection is None:
            connection = app._tested
        self._database: Database
        if connection is not None:
            self._database = BoundDatabase(app.schema, connection)
        elif url is None and isinstance(app._opened, BoundDatabase):
            raise UsageError(
                "a Harness of this App is open on the connection of the test, and async code has "
                "another connection: use the Harness that is open"
            )
        else:
            found = make_plain(url) if url else app._database.url
            self._database = LoopFreeDatabase(found, app.schema, notify=app._notify)
        self._clock = MovingClock(app.schema)
        self._kept = app._opened
        app._opened = self._database

    @property
    def url(self) -> str:
        """The URL of the test's database.

        Raises:
            UsageError: this Harness is on the connection of the test; another connection does not
                see what its open transaction has written.
        """
        if isinstance(self._database, BoundDatabase):
            raise UsageError(
                "this Harness has no URL: it is on the connection of the test, in a transaction "
                "that no other connection sees; use that connection"
            )
        return self._database.url

    def close(self) -> None:
        """Give the App back its database, and restore the clocks. On a connection the test's
        rollback restores the database's clock."""
        self._clock.restore_python()
        if self.app._opened is self._database:
            del self.app._opened  # the App opens its own when it needs it again
            if self._kept is not None:
                self.app._opened = self._kept
        if not isinstance(self._database, BoundDatabase):
            try:
                if self._clock.is_moved:
                    self._run(self._clock.restore())
            finally:
                self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    # What is enqueued

    @both
    def enqueued(self, job_type: AnyType | str, /, **arguments: Any) -> Operation[Job]:
        """Assert that a job of this type waits to run; return the oldest such job.

        Args:
            job_type: the type, or its name. Options as of `welcome.using(queue="mail")` are
                compared too.
            arguments: arguments to compare, as the handler gets them. Others may have any value.

        Raises:
            AssertionError: no job fits. The message lists the jobs that there are, nearest first.
            UsageError: the type is another App's, or has no such argument or value.
        """
        wanted = self._want(job_type, arguments)
        found = yield from self._find_all(wanted)
        if found:
            return found[0]
        raise AssertionError(
            f"no job of type {wanted.describe()} is enqueued; {(yield from self._explain(wanted))}"
        )

    aenqueued = awaitable(enqueued)

    @both
    def all_enqueued(self, job_type: AnyType | str, /, **arguments: Any) -> Operation[list[Job]]:
        """Return all such jobs, as `enqueued` finds them, the oldest first; maybe none."""
        return self._find_all(self._want(job_type, arguments))

    aall_enqueued = awaitable(all_enqueued)

    @both
    def refute_enqueued(self, job_type: AnyType | str, /, **arguments: Any) -> Operation[None]:
        """Assert that no such job waits to run. It takes the arguments of `enqueued`.

        Raises:
            AssertionError: such a job waits.
            UsageError: as `enqueued`; or the App has no type of this name.
        """
        wanted = self._want(job_type, arguments)
        if wanted.job_type is None:
            raise UsageError(
                f"refute_enqueued: the App has no job type {wanted.name!r}, so this would hold "
                f"whatever is enqueued; if it is another service's, write "
                f"`assert not rota_test.all_enqueued({wanted.name!r})`"
            )
        if (yield from self._find_all(wanted)):
            raise AssertionError(
                f"a job of type {wanted.describe()} is enqueued; "
                f"{(yield from self._explain(wanted))}"
            )

    arefute_enqueued = awaitable(refute_enqueued)

    def expect_enqueued(self, job_type: AnyType | str, /, **arguments: Any) -> ExpectedJob:
        """Assert that the block, `with` or `async with`, enqueues such a job, in whatever status
        after it. It takes the arguments of `enqueued`, and raises the same errors."""
        return ExpectedJob(self, self._want(job_type, arguments))

    def _want(self, job_type: AnyType | str, arguments: dict[str, Any]) -> Wanted:
        return Wanted.of(job_type, self.app._declarations.types_by_any_name, arguments)

    def _find_all(self, wanted: Wanted) -> Operation[list[Job]]:
        jobs = yield from find_jobs(wanted)
        pending = [job for job in jobs if job.status in PENDING]
        return [job for job in pending if not wanted.find_differences(job)]

    def _explain(self, wanted: Wanted, after: int = 0) -> Operation[str]:
        jobs = yield from ops.find(limit=LIST_MAX)
        return explain_jobs(
            wanted, self.app._declarations.types, [job for job in jobs if job.id > after]
        )

    # Running jobs

    def perform(self, job: NewJob | int) -> Performed:
        """Run one real attempt of a job, whatever its run_at; return its outcome.

        Args:
            job: a job to enqueue and run, as `welcome.new(42)`; or a job's id.

        Raises:
            UsageError: there is no such job, its queue is paused, or another job has the key.
            WrongStatus: the job is neither queued nor failed.
        """
        if isinstance(job, NewJob):
            with carry_meta(self.app._enqueue_arounds, [job]) as jobs:
                enqueued = self._run(self.app._enqueue(jobs), job.options.connection)
            job = twice.check_new(enqueued)
        return self._work("perform", pick_one(check_id(job)), 1)[0]

    async def aperform(self, job: NewJob | int) -> Performed:
        """As `perform`, on the running loop."""
        if isinstance(job, NewJob):
            with carry_meta(self.app._enqueue_arounds, [job]) as jobs:
                enqueued = await self._arun(self.app._enqueue(jobs), job.options.connection)
            job = twice.check_new(enqueued)
        return (await self._awork(pick_one(check_id(job)), 1))[0]

    def drain(self, *, limit: int = 100) -> Drained:
        """Run due jobs, also newly enqueued ones, one after the other in a worker's order, until
        none is due. Retries and schedules wait for `advance`.

        The errors of dead and failed jobs are logged, and shown by the returned value.

        Args:
            limit: most attempts, from 1. Defaults to 100.

        Raises:
            AssertionError: work is left after so many attempts, or a due job is of a type that the
                App does not have.
        """
        check_integer(limit, "limit", 1, LIST_MAX)
        drained = Drained(self._work("drain", self._find_due, limit))
        self._run(self._refuse_left(drained, limit))
        return drained

    async def adrain(self, *, limit: int = 100) -> Drained:
        """As `drain`, on the running loop."""
        check_integer(limit, "limit", 1, LIST_MAX)
        drained = Drained(await self._awork(self._find_due, limit))
        await self._arun(self._refuse_left(drained, limit))
        return drained

    def _find_due(self) -> Operation[int | None]:
        while True:
            due = yield from self._read_known()
            if not due:
                # A batch without members, or whose last member was cancelled, may have a follower.
                yield from ops.fold_all_batches()
                due = yield from self._read_known()
            if due:
                return due[0]
            if not (yield from ops.sweep_waits("", LIST_MAX)).released:
                return None

    def _read_known(self) -> Operation[list[int]]:
        known = self.app._declarations.types_by_any_name
        return [id_ for id_, name in (yield from _read_due()) if name in known]

    def _refuse_left(self, drained: Drained, limit: int) -> Operation[None]:
        errors = drained.explain_errors()
        if errors:
            logger.warning("drain: attempts that failed:%s", errors)
        due = yield from _read_due()
        if not due:
            return
        known = self.app._declarations.types_by_any_name
        listed = [
            f"\n  job {id_} {name}" + ("" if name in known else ": no such type here")
            for id_, name in due[:LEFT_SHOWN_MAX]
        ]
        more = "" if len(due) <= LEFT_SHOWN_MAX else "\n  …"
        ran = plural(len(drained.performed), "attempt")
        raise AssertionError(
            f"work is left after {ran} (limit={limit}):{''.join(listed)}{more}{errors}"
        )

    def _work(self, verb: str, pick: Pick, limit: int) -> list[Performed]:
        database = self._database
        if not isinstance(database, BoundDatabase):
            return run_alone(verb, self._awork(pick, limit), database.aclose)
        spec = self._make_spec()
        performed: list[Performed] = []
        while len(performed) < limit and (id_ := database.run(pick())) is not None:
            performed.append(attempt.perform(database, spec, self.state, id_))
        return performed

    async def _awork(self, pick: Pick, limit: int) -> list[Performed]:
        database, spec = self._database, self._make_spec()
        if not isinstance(database, BoundDatabase):
            return await _work_with_worker(self.app._bus, database, spec, pick, limit)
        performed: list[Performed] = []
        while len(performed) < limit and (id_ := await database.arun(pick())) is not None:
            performed.append(await attempt.aperform(database, spec, self.state, id_))
        return performed

    def _make_spec(self) -> WorkerSpec:
        return self.app._make_spec(WorkerConfig(slots=1, asks_limits=False))

    # Time

    @both
    def advance(self, by: Duration) -> Operation[datetime]:
        """Move the clock of the test's database forward, and Python's if `time-machine` is
        installed; return the time then.

        The schedules fire on the way, in order, each at its moment. Jobs run only in a drain.

        Args:
            by: how far, as "7d" or a timedelta.

        Raises:
            UsageError: `by` is no duration, or more than 1,000 runs are on the way.
        """
        return self._clock.advance(by)

    aadvance = awaitable(advance)

    @both
    def freeze(self, at: datetime | None = None) -> Operation[datetime]:
        """Stop these clocks until the test ends or `advance` moves them; return the time.

        Args:
            at: an aware datetime. The first move of a test, and each move back, fires nothing: the
                next runs come after it, and rows keep their times. Later moves fire the schedules
                on the way, as `advance`. Defaults to now.

        Raises:
            UsageError: the datetime has no time zone; or as `advance`.
        """
        return self._clock.freeze(at)

    afreeze = awaitable(freeze)

    # Single handlers

    run_twice = staticmethod(twice.run_twice)
    """As `rota.testing.run_twice`; not on a test's connection, where no worker can start."""
    arun_twice = staticmethod(twice.arun_twice)
    context = staticmethod(make_context)
    """As `rota.testing.make_context`."""

    def _run(self, operation: Operation[T], connection: Any = None) -> T:
        return self._database.run(operation, connection)

    async def _arun(self, operation: Operation[T], connection: Any = None) -> T:
        return await self._database.arun(operation, connection)


def _read_due() -> Operation[list[tuple[int, str]]]:
    return [(row[0], row[1]) for row in (yield Query("jobs_due", {"limit": LIST_MAX}))]


async def _work_with_worker(
    bus: Bus, database: Database, spec: WorkerSpec, pick: Pick, limit: int
) -> list[Performed]:
    """Run picked jobs in a worker of this process; return their outcomes."""

    def pick_within_limit() -> Operation[int | None]:
        if len(hand.ended) >= limit:
            return None
        return (yield from pick())

    hand = ByHand(pick_within_limit)
    await Worker(database, spec, bus, hand=hand).run()
    ids = [ended.job.id for ended, _ in hand.ended]
    found = await database.arun(ops.find(ids=ids, limit=max(1, len(ids))))
    jobs = {job.id: job for job in found}
    return [
        Performed(
            jobs.get(ended.job.id) or attempt.make_unkept(make_ending(ended, 0.0)),
            ended.job.attempts,
            find_error(end),
        )
        for ended, end in hand.ended
    ]
