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

from rota.declare.context import Context
from rota.errors import UsageError
from rota.model.awaited import has_awaited
from rota.model.job import Job, Status
from rota.model.outcome import End
from rota.store import ops
from rota.store.driver import Operation, Query
from rota.store.errors import RowRefused, StoreError
from rota.store.ops import Filter
from rota.testing.bound import BoundDatabase
from rota.worker.attempt import Attempt, make_attempts
from rota.worker.completion import Completer, NotCommitted
from rota.worker.effects import EffectKeeper
from rota.worker.finisher import find_late_result, make_ending
from rota.worker.invoke import ainvoke, invoke
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
    spec: WorkerSpec

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
                _call(database, step)
                step = next(steps)
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
            answer = None
            if not isinstance(step, HandlerCall):
                answer = await database.arun(step)
            elif step.is_async:
                await _acall(step)
            elif database.is_async:
                await asyncio.to_thread(_call, database, step)
            elif database.has_thread:
                await database.call_from_loop(partial(_call, database, step))
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
    [attempt] = make_attempts(claimed, spec.types, spec.list_leases_s(), claimed_at)
    if has_awaited(job):
        told = yield ops.read_results([job.id])
        attempt.results = told[job.id]
    if attempt.must_record_start:
        yield ops.start([(job.id, job.claims, False)])
    yield from _call_in_savepoint(database, spec, state, attempt)
    if attempt.context is not None and attempt.context._progress is not None:
        yield ops.progress([(job.id, job.claims, attempt.context._encode_progress())])
    ending = make_ending(attempt, time.monotonic())
    written: ops.Written | None = yield ops.settle_one(ending, spec.release)
    late = find_late_result(attempt)
    if written is None and late is not None:
        yield ops.keep_results([(job.id, job.claims, late)])
    if job.batch is not None:
        yield ops.fold_all_batches()
    found: list[Job] = yield ops.find(Filter(ids=[job.id]))
    error = _find_error(attempt)
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
) -> Generator[Operation[Any] | HandlerCall, Any, None]:
    """Call the handler, and end the attempt. If it leaves the transaction aborted, return to where
    it began; otherwise what it wrote stays, as what it commits stays in production.

    Raises UsageError: the transaction is another one after it.
    """
    read = attempt.read_arguments()
    if not isinstance(read, tuple):
        _end(attempt, read)
        return

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
    yield HandlerCall(attempt, read[0], spec)
    if not (yield _return_to(transaction)):
        raise UsageError(ENDED) from _find_error(attempt)


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


def _call(database: BoundDatabase, step: HandlerCall) -> None:
    if step.is_async:
        database.run_coroutine(_acall(step))
        return
    call = contextvars.copy_context().run
    call(invoke, step.attempt, step.call, step.spec.arounds, time.monotonic, _end)
    _raise_what_ends_the_test(step.attempt, is_cancelled=False)


async def _acall(step: HandlerCall) -> None:
    async with AsyncExitStack() as stack:
        for one in step.spec.lifespans:  # those of the App's Jobs
            await stack.enter_async_context(one())
        called = ainvoke(step.attempt, step.call, step.spec.arounds, time.monotonic, _end)
        task = asyncio.create_task(called, name="rota job")
        await task
        _raise_what_ends_the_test(step.attempt, is_cancelled=task.cancelling() > 0)


def _end(attempt: Attempt, end: End) -> None:
    attempt.end(end, time.monotonic())


def _find_error(attempt: Attempt) -> BaseException | None:
    assert attempt.outcome is not None
    return find_error(attempt.outcome)


def _raise_what_ends_the_test(attempt: Attempt, *, is_cancelled: bool) -> None:
    """Raise the error of a handler that is no outcome: it ends the whole test, or it came with the
    cancellation of the test."""
    error = _find_error(attempt)
    if error is None or isinstance(error, Exception | SystemExit):
        return
    if is_cancelled or not isinstance(error, asyncio.CancelledError):
        raise error
