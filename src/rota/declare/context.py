"""The context of a running handler: its job, the shared state, stop requests and progress."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from contextvars import ContextVar
from datetime import datetime
from math import inf
from typing import Any, Protocol, TypeVar, overload

import msgspec

from rota.declare.connection import AnyConnection
from rota.declare.effect import EffectBlock, StepBlock, run_call
from rota.declare.job_type import SenderOfJobs
from rota.declare.journal import Journal, KeepsEffects
from rota.declare.result import encode_result
from rota.errors import AttemptCancelled, UsageError
from rota.model.awaited import NO_RESULTS, Results
from rota.model.batch import META_KEY, BatchEnd
from rota.model.effect import IfUncertain
from rota.model.failure import one_line
from rota.model.job import Job
from rota.model.retry import Errors
from rota.model.scrub import entered, scrub

T = TypeVar("T")

NOTE_MAX = 200
PROGRESS_MOST = 2**53
"""Up to this number, every JSON reader keeps a whole number exact."""

_making_journals = threading.Lock()
_current: ContextVar[Context | OpensContext | None] = entered


class OpensContext(Protocol):
    """A running attempt, which makes its context on demand."""

    def open_context(self) -> Context: ...


class Completes(Protocol):
    """The worker's part of `Context.complete`: finishes the job in the handler's transaction."""

    def complete(self, context: Context, connection: Any, result_json: str | None) -> Any: ...
    def open(self) -> AbstractContextManager[Any]: ...
    def aopen(self) -> AbstractAsyncContextManager[Any]: ...


class Context:
    """The running attempt. The first argument of handlers declared with `takes_context=True`;
    `rota.context()` returns it too, also in threads."""

    def __init__(
        self,
        job: Job,
        worker: str,
        state: Any = None,
        on_progress: Callable[[Context], None] | None = None,
        completer: Completes | None = None,
        effects: KeepsEffects | None = None,
        results: Results | None = None,
        jobs: SenderOfJobs | None = None,
        find_time_left: Callable[[Context], float] | None = None,
    ) -> None:
        self.job = job
        """The job as claimed; `job.attempts` counts this attempt."""
        self.worker = worker
        """The worker's id, as in `locked_by`."""
        self.state = state
        """What the App's lifespan yielded in this process; None without a lifespan."""
        self.results: Results = NO_RESULTS if results is None else results
        """The results of the jobs of `rota.WaitFor`, by id; empty before the first wait is over."""
        self._stopped: str | None = None
        self._progress: tuple[float, float | None, str | None] | None = None
        self._stored: tuple[float, float | None, str | None] | None = None
        """The last report that the database has."""
        self._is_being_stored = False
        """Whether the lease keeper is about to write a report, perhaps an earlier report."""
        self._on_progress = on_progress
        self._completer = completer
        self._completed_on: object = None
        """The connection of the last `complete`."""
        self._effects = effects
        self._journal: Journal | None = None
        self._jobs = jobs
        self._find_time_left = find_time_left

    def __repr__(self) -> str:
        return f"<context of job {self.job.id} {self.job.job_type}, attempt {self.job.attempts}>"

    @property
    def app(self) -> Any:
        """The `rota.App` of the job: `ctx.app.enqueue("name", …)`, without an import of its module.
        With `process=True` the App of the handler's process: its connections are its own, and its
        lifespan is not entered. For a checker, write `app: rota.App = ctx.app`.

        Raises:
            UsageError: no App has the job type, or the handler's process does not find the App:
                declare the handler with a decorator.
        """
        if self._jobs is None:
            raise UsageError("ctx.app: no App is known here that has the job's type")
        return self._jobs._sender

    @property
    def items(self) -> Sequence[Context]:
        """The contexts of the jobs of this call: with `chunk` one for each item of the list,
        otherwise this context alone."""
        return (self,)

    @property
    def scheduled_for(self) -> datetime | None:
        """The time for which a schedule enqueued the job: the same at every attempt, however late.
        None: no schedule enqueued it, or a person triggered it."""
        return self.job.scheduled_for

    @property
    def ended_batch(self) -> BatchEnd:
        """The outcome of the batch that this job follows.

        Raises:
            UsageError: the job follows no batch: it was enqueued in another way than as `then`.
        """
        ended = (self.job.meta or {}).get(META_KEY)
        if ended is None:
            raise UsageError(
                f"ctx.ended_batch: job {self.job.id} {self.job.job_type} follows no batch: "
                "enqueue it as then= of a batch or a job; a test gives make_context(ended_batch=…)"
            )
        return msgspec.convert(ended, BatchEnd)

    @property
    def cancelled(self) -> str | None:
        """Why the attempt should stop: the job was cancelled, timed out or lost its lease, or the
        worker is going down. None: the attempt should continue."""
        return self._stopped

    def raise_if_cancelled(self) -> None:
        """Raise `AttemptCancelled` if the attempt should stop. Plain functions call this method
        between steps, because a thread cannot be stopped from outside."""
        if self._stopped is not None:
            raise AttemptCancelled(self._stopped)

    @property
    def time_left_s(self) -> float:
        """Seconds until the attempt reaches its timeout; 0 or less: it has. In the context of a
        test it is `inf`.

        An async handler gets a TimeoutError a minute earlier within
        `async with asyncio.timeout(ctx.time_left_s - 60):`; a plain function compares it.
        """
        return inf if self._find_time_left is None else self._find_time_left(self)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress, from any thread, as often as you like. The worker stores the latest
        report about once a second, and when the handler ends; it stays for the next attempt.

        Args:
            done: how much is done, 0 … 2**53.
            total: how much there is to do, 0 … 2**53. Defaults to unknown.
            note: the current step; stored as one line of at most 200 characters.

        Raises:
            UsageError: a number is negative, too large or not a number; the note is not a string.
        """
        if note is not None and not isinstance(note, str):
            raise UsageError(f"progress: note must be a string, not {note!r}")
        self._progress = (
            _amount(done, "done"),
            None if total is None else _amount(total, "total"),
            # The secrets to mask are known here.
            scrub(note) if note else note,
        )
        if self._on_progress is not None:
            self._on_progress(self)

    def transaction(self) -> JobTransaction:
        """Return a transaction whose commit also finishes the job: `with ctx.transaction() as
        connection:`, or `async with` in an async handler.

        The connection is a psycopg connection, opened for the block. The writes of the block are
        committed together with the success of the job, or not at all: if the block raises, or the
        job was lost meanwhile, all is rolled back, and the attempt ends as by that error. The
        server ends a connection that sends nothing for a minute. Within the block of an effect or a
        step it raises UsageError.

        The job succeeds with the commit, before the handler returns a result: if other jobs wait
        for the result, give it to `complete` in the block.
        """
        return JobTransaction(self)

    def complete(self, connection: AnyConnection, result: Any = None) -> Any:
        """Finish the job in an open transaction of yours. Call it last, then commit; on an async
        connection, await it.

        The commit makes the job succeed, whatever the handler does afterwards. If the transaction
        is not committed, the attempt fails, even if the handler returns.

        Args:
            connection: as `using(connection=…)` takes it, to the database of the job, in a
                transaction. Its role needs the rights of a worker.
            result: the job's result. It replaces the handler's return value, which is stored after
                the commit and lost if the process dies before.

        Raises:
            UsageError: no transaction is open; an effect or a step is open; the result has no JSON
                form or is over 64 KiB.
            AttemptCancelled: this attempt does not hold the job any more. Roll back.
        """
        encoded, problem = (None, None) if result is None else encode_result(result)
        if problem is not None:
            raise UsageError(f"complete: the result cannot be stored: {problem}")
        return self._find_completer().complete(self, connection, encoded)

    def _find_completer(self) -> Completes:
        if self._completer is None:
            raise UsageError("only a worker can finish the job of a context")
        if self._journal is not None:
            self._journal.refuse_open()
        return self._completer

    def effect(
        self,
        key: str,
        *,
        about: Mapping[str, Any] | None = None,
        if_uncertain: IfUncertain = "dead",
        safe: Errors = (),
        not_done: datetime | None = None,
    ) -> EffectBlock:
        """Guard a call that must not be repeated blindly, such as a mail or a charge:
        `ctx.effect("welcome_email:user:42").call(send, 42)`, which an async handler awaits. `call`
        calls the function, or returns the kept result of an effect that is done.

        The intent is committed before the call, the result after it. A call that ends without a
        result may have happened, unless the error proves that it did not: the server refused the
        connection or the request, the error is `effect.not_done(…)`, or `safe` has it.

        Where one function is too little, write a block: `with ctx.effect(key) as effect:`, or
        `async with`. It always runs, and must ask `effect.done` whether to act.

        Args:
            key: names the effect among all jobs, by the business event; 1 to 255 characters.
            about: what finds and shows the effect, from before it happens: JSON of at most 4 KiB,
                as in `{"to": "ada@example.org"}`. Defaults to nothing.
            if_uncertain: what a later attempt does if the effect may have happened: "dead" ends the
                job, so that you ask the provider; "skip" treats it as done; "repeat" repeats it.
            safe: exception classes and status codes that prove that nothing happened.
            not_done: the `intended_at` of an uncertain effect that you found not to have happened:
                if nobody has begun it since, it is done, whatever `if_uncertain` is.

        Raises:
            UsageError: an argument is invalid, the effect is open in this attempt, or the `with`
                of an async handler is no `async with`.
            Dead: the effect may have happened, and you must ask the provider.
            Snooze: another job is at it; this job comes back later, and no attempt counts.
            AttemptCancelled: this attempt does not hold the job any more.
        """
        return EffectBlock(
            self._find_journal(), key, if_uncertain, safe, about=about, not_done=not_done
        )

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Coroutine[Any, Any, T]],
        *args: Any,
        if_uncertain: IfUncertain = ...,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        if_uncertain: IfUncertain = ...,
        **kwargs: Any,
    ) -> T: ...

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        if_uncertain: IfUncertain = "repeat",
        **kwargs: Any,
    ) -> Any:
        """Call a function once for this job, and keep its result: a retried or requeued job gets
        the kept result, and runs only what is missing. In an async handler, await it.

        A step runs at least once, as a job does: an interrupted step runs again, unless
        `if_uncertain` says otherwise. Steps must be called in the same order in every attempt.

        Args:
            name: names the step in its job; 1 to 255 characters.
            fn: a function; in an async handler an async function, or `asyncio.to_thread` with a
                plain function as its first argument.
            if_uncertain: as for `effect`.

        Returns:
            The result of `fn`, after a way through JSON: in its annotated type, if it is annotated.

        Raises:
            UsageError: an argument is invalid, or the name was used before in this attempt.
            Dead: the steps are called in another order than before; the result cannot be kept; the
                step may have happened, and you must ask the provider.
            Snooze, AttemptCancelled: as `effect`.
        """
        block = StepBlock(self._find_journal(), name, if_uncertain, fn, args)
        return run_call(block, fn, args, kwargs)

    @property
    def _unasked_effects(self) -> list[str]:
        """Done effects whose blocks did not ask `effect.done`."""
        return [] if self._journal is None else list(self._journal.unasked)

    def _find_journal(self) -> Journal:
        with _making_journals:  # threads of one handler share its journal
            if self._journal is None:
                self._journal = Journal(self, self._effects)
            return self._journal

    def _continue_after(self, earlier: Context) -> None:
        """Continue after another call of the handler in the same attempt. Called by the worker."""
        if earlier._journal is not None:
            self._find_journal().continue_after(earlier._journal)

    @property
    def _has_news(self) -> bool:
        return self._progress is not self._stored

    def _encode_progress(self) -> str:
        """Return the latest progress report in JSON. From any thread."""
        assert self._progress is not None
        done, total, note = self._progress
        return msgspec.json.encode(
            {
                "done": done,
                "total": total,
                "note": (one_line(note, NOTE_MAX) if note else "") or None,
            }
        ).decode()

    def _request_stop(self, why: str) -> None:
        """Make `raise_if_cancelled` raise from now on. From any thread; the first reason stays."""
        if self._stopped is None:
            self._stopped = why


class JobTransaction:
    """A transaction that finishes the job of a context; see `Context.transaction`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Any:
        self._plain = self._open()
        return self._plain.__enter__()

    def __exit__(self, *raised: Any) -> bool | None:
        return self._plain.__exit__(*raised)

    async def __aenter__(self) -> Any:
        self._async = self._aopen()
        return await self._async.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._async.__aexit__(*raised)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with self._context._find_completer().open() as connection:
            yield connection
            if self._context._completed_on is not connection:
                self._context.complete(connection)

    @asynccontextmanager
    async def _aopen(self) -> AsyncIterator[Any]:
        async with self._context._find_completer().aopen() as connection:
            yield connection
            if self._context._completed_on is not connection:
                await self._context.complete(connection)


def _amount(value: object, name: str) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= PROGRESS_MOST
    ):
        raise UsageError(f"progress: {name} must be a number from 0 to 2**53, not {value!r}")
    return int(value) if isinstance(value, int) else float(value)


def context() -> Context:
    """Return the context of the attempt that this task or thread runs.

    Raises:
        UsageError: no handler runs here.
    """
    found = find_context()
    if found is None:
        raise UsageError(
            "rota.context() was called outside a running job "
            f"(thread {threading.current_thread().name}); only a handler has a context"
        )
    return found


def find_context() -> Context | None:
    """Return the running attempt; None if no handler runs here."""
    entered = _current.get(None)
    return entered if entered is None or isinstance(entered, Context) else entered.open_context()


def find_entered(of: contextvars.Context) -> Context | OpensContext | None:
    """Return what a task or thread with these variables has entered; None: no handler."""
    return of.get(_current)


enter = _current.set
"""Set the context, or what opens it, of the current task or copied context."""
