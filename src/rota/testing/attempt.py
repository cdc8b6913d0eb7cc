"""One attempt on the test's connection: claim, handler, effects and outcome are statements of its
open transaction.

There is no lease keeper and no second connection: nobody else sees the claim. The attempt is a
generator, which yields operations and one call of the handler; `perform` and `aperform` drive it.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from rota.declare.around import Around
from rota.declare.context import Context
from rota.declare.jobs import Lifespan
from rota.errors import UsageError
from rota.model.awaited import has_awaited
from rota.model.job import Job, Status
from rota.model.outcome import End
from rota.model.scrub import Hidden
from rota.store import ops
from rota.store.driver import Operation, Query
from rota.store.errors import RowRefused, StoreError
from rota.store.ops import Filter
from rota.testing.bound import BoundDatabase
from rota.worker.attempt import Attempt
from rota.worker.completion import Completer, NotCommitted
from rota.worker.effects import EffectKeeper
from rota.worker.finisher import find_late_result, make_ending
from rota.worker.invoke import GoesOn, ainvoke, invoke
from rota.worker.spec import WorkerSpec
from rota.worker.summary import Performed, find_error

SAVEPOINT = "rota_attempt"
ENDED = (
    "the handler has ended the test's transaction, or rolled back its beginning, so there is no "
    "attempt to record, and what it committed stays: what it commits and rolls back must be a "
    "savepoint, as with SQLAlchemy's join_transaction_mode='create_savepoint', Django's TestCase, "
    "or psycopg's `with connection.transaction():`"
)


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """The call of the handler, among the operations of an attempt."""

    attempt: Attempt
    arguments: dict[str, Any]
    arounds: tuple[Around, ...]
    lifespans: tuple[Lifespan, ...]
    """Those of the App's Jobs; an async handler runs within them."""

    @property
    def is_async(self) -> bool:
        return self.attempt.job_type.is_async

    def call(self) -> Any:
        """Call it; of an async one, return the coroutine."""
        job_type = self.attempt.job_type
        given = (self.attempt.open_context(),) if job_type.takes_context else ()
        return job_type.func(*given, **self.arguments)


Steps = Generator[Operation[Any] | HandlerCall, Any, Performed]


def perform(database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int) -> Performed:
    """Run one attempt of a job on a plain connection, in the calling thread; an async handler in a
    loop of its own."""
    steps = _attempt(database, spec, state, id_)
    try:
        step = next(steps)
        while True:
            if isinstance(step, HandlerCall):
                step = steps.send(_call(database, step))
            else:
                step = steps.send(database.run(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def aperform(database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int) -> Performed:
    """Run one attempt of a job, from a loop.

    An async handler runs on that loop. A plain one runs in a thread, as in a worker; Rota's own
    statements come back from there to the loop.

    Raises:
        UsageError: the handler is plain and so is the connection, which may belong to this thread.
    """
    steps = _attempt(database, spec, state, id_)
    try:
        step = next(steps)
        while True:
            if not isinstance(step, HandlerCall):
                answer = await database.arun(step)
            elif step.is_async:
                answer = await _acall(step)
            elif database.is_async:
                answer = await asyncio.to_thread(_call, database, step)
            elif database.has_thread:
                answer = await database.call_from_loop(partial(_call, database, step))
            else:
                raise UsageError(
                    f"the handler of {step.attempt.job_type.name!r} is a plain function and the "
                    "test's connection a plain one: call perform or drain from plain code, outside "
                    "the event loop"
                )
            step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _attempt(database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int) -> Steps:
    claimed_at = time.monotonic()
    claimed: ops.Claimed = yield ops.claim_one(spec.make_claimant(), id_)
    [job] = claimed.jobs
    attempt = Attempt(
        job,
        spec.types[job.job_type],
        claimed_at,
        spec.find_lease_s(job.job_type),
        bool(claimed.suspects),
        bool(claimed.unrecorded),
        bool(claimed.capped),
    )
    if has_awaited(job):
        told = yield ops.read_results([job.id])
        attempt.results = told[job.id]
    if attempt.must_record_start:
        yield ops.start([(job.id, job.claims, False)])
    end = yield from _call_in_savepoint(database, spec, state, attempt)
    attempt.end(end, time.monotonic())
    if attempt.context is not None and attempt.context._progress is not None:
        yield ops.progress([(job.id, job.claims, attempt.context.encode_progress())])
    ending = make_ending(attempt, time.monotonic())
    written: ops.Written | None = yield ops.settle_one(ending, spec.release)
    late = find_late_result(attempt)
    if written is None and late is not None:
        yield ops.keep_results([(job.id, job.claims, late)])
    if job.batch is not None:
        yield ops.fold_all_batches()
    found: list[Job] = yield ops.find(Filter(ids=[job.id]))
    error = find_error(end)
    if written is None and not attempt.completes:
        raise UsageError(ENDED) from error
    if attempt.completes and written is not None:
        error = error or NotCommitted()
    return Performed(found[0] if found else make_unkept(ending), job.attempts, error)


def make_unkept(ending: ops.Ending) -> Job:
    """Return a job that is over and of which its type keeps nothing."""
    result = ending.transition.result_json
    return msgspec.structs.replace(ending.job, status=Status.SUCCEEDED, result_json=result)


def _call_in_savepoint(
    database: BoundDatabase, spec: WorkerSpec, state: Any, attempt: Attempt
) -> Generator[Operation[Any] | HandlerCall, Any, End]:
    """Call the handler. If it leaves the transaction aborted, return to where it began; otherwise
    what it wrote stays, as what it commits stays in production.

    Raises UsageError: the transaction is another one after it.
    """
    read = attempt.read_arguments()
    if not isinstance(read, tuple):
        return read

    def note(context: Context) -> float:
        attempt.completes = True
        return time.monotonic() - (attempt.began_at or time.monotonic())

    completer = Completer(database, spec.release, note)
    keeper, jobs = EffectKeeper(database), attempt.job_type.jobs
    context = Context(attempt.job, spec.name, state, None, completer, keeper, attempt.results, jobs)
    Attempt.admit([attempt])
    Attempt.begin([attempt], None, lambda _: context)
    transaction = yield _read_transaction()
    yield _command(f"savepoint {SAVEPOINT}")
    end: End = yield HandlerCall(attempt, read[0], spec.arounds, spec.lifespans)
    if (yield _return_to(transaction)):
        return end
    raise UsageError(ENDED) from find_error(end)


def _command(text: str) -> Operation[None]:
    yield Query("savepoint", command=text)


def _read_transaction() -> Operation[str | None]:
    return (yield Query("transaction"))[0][0]  # type: ignore[no-any-return]


def _return_to(transaction: str | None) -> Operation[bool]:
    """Leave a transaction that is aborted; return whether it still is this one."""
    try:
        return (yield from _read_transaction()) == transaction
    except StoreError:
        try:
            yield Query("savepoint", command=f"rollback to savepoint {SAVEPOINT}")
        except RowRefused:
            return False
    return (yield from _read_transaction()) == transaction


# The call of the handler: in a copy of the caller's context variables, as in a worker


class BoundRun:
    """An attempt whose handler is called on the test's connection."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.end: End
        """How it ended. Set once the handler was called."""

    @property
    def hidden(self) -> Hidden | None:
        return self._attempt.hidden

    def open_context(self) -> Context:
        """Return what the handler sees."""
        return self._attempt.open_context()

    def take_first_step(self, now: float) -> End | None:
        return self._attempt.take_first_step(now)

    def read_return(self, result: Any) -> End:
        return self._attempt.read_return(result)

    def read_error(self, error: BaseException) -> End:
        """Return the outcome of a handler that raised. What ends the whole test goes on."""
        if not isinstance(error, Exception | SystemExit | asyncio.CancelledError):
            raise GoesOn
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # with the test
                raise GoesOn
        return self._attempt.read_error(error)

    def take_end(self, end: End) -> None:
        self.end = end


def _call(database: BoundDatabase, step: HandlerCall) -> End:
    if step.is_async:
        return database.run_coroutine(_acall(step))
    run = BoundRun(step.attempt)
    call = contextvars.copy_context().run
    call(invoke, run, step.call, step.arounds, time.monotonic, BoundRun.take_end)
    return run.end


async def _acall(step: HandlerCall) -> End:
    run = BoundRun(step.attempt)
    called = ainvoke(run, step.call, step.arounds, time.monotonic, BoundRun.take_end)
    async with AsyncExitStack() as stack:
        for one in step.lifespans:
            await stack.enter_async_context(one())
        await asyncio.create_task(called, name="rota job")
    return run.end
