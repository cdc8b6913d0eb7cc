"""One attempt on the test's connection, in its open transaction.

Claim, handler, effects and outcome are statements there, without a lease keeper and a second
connection. An attempt is an operation, a call of the handler and another operation.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
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
class BoundAttempt:
    """An attempt that has begun on the connection of the test."""

    attempt: Attempt
    arguments: dict[str, Any] | None
    """The handler's arguments; None: they cannot be read, and the attempt has ended."""
    spec: WorkerSpec
    transaction: str | None
    """The transaction of the test."""

    @property
    def is_async(self) -> bool:
        return self.attempt.job_type.is_async

    def call(self) -> Any:
        """Call the handler; return the coroutine of an async handler."""
        assert self.arguments is not None
        job_type = self.attempt.job_type
        given = (self.attempt.open_context(),) if job_type.takes_context else ()
        return job_type.func(*given, **self.arguments)


def perform(database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int) -> Performed:
    """Run one attempt on a plain connection, in this thread; an async handler in its own loop."""
    begun = database.run(_begin(database, spec, state, id_))
    if begun.arguments is not None:
        _call(database, begun)
    return database.run(_finish(begun))


async def aperform(database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int) -> Performed:
    """Run one attempt of a job, from a loop.

    An async handler runs on that loop. A plain one runs in a thread, as in a worker; its calls of
    Rota come back to the loop.

    Raises:
        UsageError: handler and connection are plain: the connection may belong to this thread.
    """
    begun = await database.arun(_begin(database, spec, state, id_))
    if begun.arguments is None:
        pass
    elif begun.is_async:
        await _acall(begun)
    elif database.is_async:
        await asyncio.to_thread(_call, database, begun)
    elif database.has_thread:
        await database.call_from_loop(partial(_call, database, begun))
    else:
        raise UsageError(
            f"the handler of {begun.attempt.job_type.name!r} is a plain function and the test's "
            "connection a plain one: call perform or drain from plain code, outside the event loop"
        )
    return await database.arun(_finish(begun))


def _begin(
    database: BoundDatabase, spec: WorkerSpec, state: Any, id_: int
) -> Operation[BoundAttempt]:
    """Claim the job, and set the savepoint to which an aborted transaction returns."""
    claimed_at = time.monotonic()
    claimed = yield from ops.claim_one(spec.make_claimant(), id_)
    [job] = claimed.jobs
    [attempt] = make_attempts(claimed, spec.types, spec.list_leases_s(), claimed_at)
    if has_awaited(job):
        told = yield from ops.read_results([job.id])
        attempt.results = told[job.id]
    if attempt.must_record_start:
        yield from ops.start([(job.id, job.claims, False)])
    read = attempt.read_arguments()
    if not isinstance(read, tuple):
        _end(attempt, read)
        return BoundAttempt(attempt, None, spec, None)

    def note(context: Context) -> float:
        attempt.completes = True
        return time.monotonic() - (attempt.began_at or time.monotonic())

    completer = Completer(database, spec.release, note)
    keeper, jobs = EffectKeeper(database), attempt.job_type.jobs
    context = Context(job, spec.name, state, None, completer, keeper, attempt.results, jobs)
    Attempt.admit([attempt])
    Attempt.begin([attempt], None, lambda _: context)
    transaction = yield from _read_transaction()
    yield Query("savepoint", command=f"savepoint {SAVEPOINT}")
    return BoundAttempt(attempt, read[0], spec, transaction)


def _finish(begun: BoundAttempt) -> Operation[Performed]:
    """Write the outcome. The handler's writes stay, as in production, unless it left the
    transaction aborted. Raises UsageError: another transaction is open now."""
    attempt, job = begun.attempt, begun.attempt.job
    error = _find_error(attempt)
    if begun.arguments is not None and not (yield from _return_to(begun.transaction)):
        raise UsageError(ENDED) from error
    if attempt.context is not None and attempt.context._progress is not None:
        yield from ops.progress([(job.id, job.claims, attempt.context._encode_progress())])
    ending = make_ending(attempt, time.monotonic())
    written = yield from ops.settle_one(ending, begun.spec.release)
    late = find_late_result(attempt)
    if written is None and late is not None:
        yield from ops.keep_results([(job.id, job.claims, late)])
    if job.batch is not None:
        yield from ops.fold_all_batches()
    found = yield from ops.find(ids=[job.id])
    if written is None and not attempt.completes:
        raise UsageError(ENDED) from error
    if attempt.completes and written is not None:
        error = error or NotCommitted()
    return Performed(found[0] if found else make_unkept(ending), job.attempts, error)


def make_unkept(ending: ops.Ending) -> Job:
    """Return an ended job of which its type keeps nothing."""
    result = ending.transition.result_json
    return msgspec.structs.replace(ending.job, status=Status.SUCCEEDED, result_json=result)


def _read_transaction() -> Operation[str | None]:
    return (yield Query("transaction"))[0][0]  # type: ignore[no-any-return]


def _return_to(transaction: str | None) -> Operation[bool]:
    """Leave an aborted transaction; return whether it is still this transaction."""
    try:
        return (yield from _read_transaction()) == transaction
    except StoreError:
        try:
            yield Query("savepoint", command=f"rollback to savepoint {SAVEPOINT}")
        except RowRefused:
            return False
    return (yield from _read_transaction()) == transaction


# The call of the handler: in a copy of the caller's context variables, as in a worker


def _call(database: BoundDatabase, begun: BoundAttempt) -> None:
    if begun.is_async:
        database.run_coroutine(_acall(begun))
        return
    call = contextvars.copy_context().run
    call(invoke, begun.attempt, begun.call, begun.spec.arounds, time.monotonic, _end)
    _raise_what_ends_the_test(begun.attempt, is_cancelled=False)


async def _acall(begun: BoundAttempt) -> None:
    async with AsyncExitStack() as stack:
        for lifespan in begun.spec.lifespans:  # those of the App's Jobs
            await stack.enter_async_context(lifespan())
        called = ainvoke(begun.attempt, begun.call, begun.spec.arounds, time.monotonic, _end)
        task = asyncio.create_task(called, name="rota job")
        await task
        _raise_what_ends_the_test(begun.attempt, is_cancelled=task.cancelling() > 0)


def _end(attempt: Attempt, end: End) -> None:
    attempt.end(end, time.monotonic())


def _find_error(attempt: Attempt) -> BaseException | None:
    assert attempt.outcome is not None
    return find_error(attempt.outcome)


def _raise_what_ends_the_test(attempt: Attempt, *, is_cancelled: bool) -> None:
    """Raise the handler's error if it ends the test, or came with the test's cancellation."""
    error = _find_error(attempt)
    if error is None or isinstance(error, Exception | SystemExit):
        return
    if is_cancelled or not isinstance(error, asyncio.CancelledError):
        raise error
