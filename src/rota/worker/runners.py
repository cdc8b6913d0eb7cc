"""Runners call handlers: on the worker's loop, in threads, or in processes of their own.

A runner decides nothing. It tells the executor what a handler's return or exception means.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rota.declare.context import enter
from rota.declare.result import encode_result
from rota.errors import AttemptCancelled
from rota.model.outcome import NOTHING, Errored, HandedBack, Outcome, Succeeded
from rota.model.units import plural
from rota.worker.around import acall_within, call_within

if TYPE_CHECKING:
    from rota.declare.job_type import JobType
    from rota.model.job import Job
    from rota.model.outcome import End
    from rota.worker.attempt import Attempt
    from rota.worker.parts import Parts
    from rota.worker.processes import Processes

logger = logging.getLogger("rota")

ASYNC_STOP_S = 1.0
"""How long an async handler may take to stop. A thread's attempt ends at once, because the handler
may never ask whether it should stop."""
KILL_S = 10.0
"""The same for a handler in a process of its own: it is killed if it does not stop. The kill frees
the slot, and may take a while on a busy machine."""
UNSTARTED_S = 10.0
"""Seconds until a job may be claimed again for which no thread or process could be started."""


class Runner(Protocol):
    """One way to call handlers. All methods are called on the worker's loop."""

    stop_s: float
    """How long an attempt may last after its handler was asked to stop."""

    def begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        """Start the handler, and return at once. `Executor.handle_end` receives the outcome."""

    def stop(self, attempt: Attempt) -> None:
        """Interrupt a handler that was asked to stop, if that is possible."""

    def close(self) -> None:
        """Release idle threads and processes. Running ones end by themselves, or are killed."""


class Runners(dict["JobType[..., ..., Any]", Runner]):
    """The runners of one worker, by job type."""

    def __init__(
        self, parts: Parts, processes: Processes | None, threads: Threads | None = None
    ) -> None:
        """Without `processes` every handler runs in this one; `threads` are for plain handlers."""
        super().__init__()
        # Every handler starts from the worker's own context variables, not from those of the
        # handler that has just ended.
        context = contextvars.copy_context()
        self._loop = LoopRunner(parts, context)
        self._thread = ThreadRunner(parts, context, threads or Threads("rota-handler"))
        self._process = None if processes is None else ProcessRunner(parts, processes)

    def __missing__(self, job_type: JobType[..., ..., Any]) -> Runner:
        runner: Runner = self._loop if job_type.is_async else self._thread
        if job_type.options.process is not None and self._process is not None:
            runner = self._process
        self[job_type] = runner
        return runner

    def close(self) -> None:
        """Close all of them."""
        for runner in (self._loop, self._thread, self._process):
            if runner is not None:
                runner.close()


class LoopRunner:
    """Async handlers, as tasks on the worker's loop."""

    stop_s = ASYNC_STOP_S

    def __init__(self, parts: Parts, context: contextvars.Context) -> None:
        self._parts = parts
        self._context = context

    def begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        loop, run = self._parts.loop, self._run(attempt, arguments)
        name, context = f"rota job {attempt.job.id}", self._context.copy()
        if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
            # It takes its first step now: a handler that never waits costs the loop nothing.
            attempt.task = asyncio.Task(
                run, loop=loop, name=name, context=context, eager_start=True
            )
        else:
            attempt.task = loop.create_task(run, name=name, context=context)

    def stop(self, attempt: Attempt) -> None:
        if attempt.task is not None and attempt.began_at is not None:
            attempt.task.cancel()

    def close(self) -> None: ...

    async def _run(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        assert attempt.context is not None
        attempt.task = asyncio.current_task()  # `begin` knows it only after the first step
        enter(attempt.context)
        # A blocked loop may have kept it waiting; its time begins now.
        end = attempt.take_first_step(self._parts.clock.monotonic())
        if end is None:
            try:
                job_type = attempt.job_type
                given = (attempt.context,) if job_type.takes_context else ()
                if arounds := self._parts.spec.arounds:
                    call = partial(job_type.func, *given, **arguments)
                    end = await acall_within(arounds, attempt.context, call, attempt.read_return)
                else:
                    end = attempt.read_return(await job_type.func(*given, **arguments))
            except BaseException as error:  # noqa: BLE001 - SystemExit and cancellation too
                end = read_error(attempt, error)
        self._parts.executor.handle_end(attempt, end)


class ThreadRunner:
    """Plain functions, in threads. A thread cannot be stopped from outside."""

    stop_s = 0.0

    def __init__(self, parts: Parts, context: contextvars.Context, threads: Threads) -> None:
        self._parts = parts
        self._context = context
        self._threads = threads

    def begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        try:
            run = self._context.copy().run
            self._threads.submit(partial(run, self._run, attempt, arguments))
        except RuntimeError as error:
            now = self._parts.clock.monotonic()
            end = hand_back_unstarted(attempt, "thread", error, now)
            self._parts.loop.call_soon(self._parts.executor.handle_end, attempt, end)

    def stop(self, attempt: Attempt) -> None: ...

    def close(self) -> None:
        self._threads.close()

    def _run(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        assert attempt.context is not None
        enter(attempt.context)
        end = attempt.take_first_step(self._parts.clock.monotonic())
        if end is None:
            try:
                job_type = attempt.job_type
                given = (attempt.context,) if job_type.takes_context else ()
                if arounds := self._parts.spec.arounds:
                    call = partial(job_type.func, *given, **arguments)
                    end = call_within(arounds, attempt.context, call, attempt.read_return)
                else:
                    end = attempt.read_return(job_type.func(*given, **arguments))
            except BaseException as error:  # noqa: BLE001 - as above
                end = read_error(attempt, error)
        # A closed loop: the worker has ended without this thread, and handed its job back.
        with suppress(RuntimeError):
            self._parts.loop.call_soon_threadsafe(self._parts.executor.handle_end, attempt, end)


class ProcessRunner:
    """Handlers in processes of their own. The pool stops them on request of their context."""

    stop_s = KILL_S

    def __init__(self, parts: Parts, processes: Processes) -> None:
        self._parts = parts
        self._processes = processes

    def begin(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        attempt.task = self._parts.loop.create_task(
            self._run(attempt, arguments), name=f"rota job {attempt.job.id}"
        )

    def stop(self, attempt: Attempt) -> None: ...

    def close(self) -> None:
        self._processes.close()

    async def _run(self, attempt: Attempt, arguments: dict[str, Any]) -> None:
        end = await self._processes.attempt(attempt, arguments)
        self._parts.executor.handle_end(attempt, end)


# What a handler's return or exception means


def read_return(job: Job, result: Any) -> End:
    """Return the outcome of a handler that returned."""
    if result is None:
        return NOTHING
    if isinstance(result, Outcome):
        return result
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        why = "declare the async function itself, or await inside"
        return Errored(TypeError(f"the handler returned an awaitable that is never awaited: {why}"))
    if isinstance(result, type) and issubclass(result, Outcome):
        name = result.__name__
        why = f"return an instance, as in {name}(…)"
        return Errored(TypeError(f"the handler returned the class {name}; {why}"))
    encoded, problem = encode_result(result)
    if problem is not None:
        logger.warning("job %s %s: its result is not kept: %s", job.id, job.job_type, problem)
    return Succeeded(encoded)


def read_list(job: Job, result: Any, stop: End | None) -> End:
    """Return the outcome of a handler that takes a list and was called with this job alone."""
    if result is None or isinstance(result, Outcome):
        return read_return(job, result)
    return count_answers(1, result) or read_answer(job, result[0], stop)


def read_answer(job: Job, answer: Any, stop: End | None) -> End:
    """Return the outcome of one job of a list, by what the handler answered for it; `stop` is that
    of the call's stop, if it was stopped."""
    if isinstance(answer, BaseException) and not isinstance(answer, Outcome):
        return stop if stop is not None and is_stop(answer) else Errored(answer)
    if isinstance(answer, type) and issubclass(answer, BaseException):
        what = f"the handler answered with the class {answer.__name__}; give an instance"
        return Errored(TypeError(what))
    return read_return(job, answer)


def count_answers(jobs: int, result: Any) -> Errored | None:
    """Return what is wrong with a handler's list of answers for so many jobs; None: nothing."""
    if not isinstance(result, list | tuple):
        if inspect.iscoroutine(result):
            result.close()
        what = f"a list with an answer for each of its {plural(jobs, 'job')}, or None"
        return Errored(TypeError(f"the handler must return {what}, not {type(result).__name__}"))
    if len(result) == jobs:
        return None
    return Errored(
        TypeError(f"the handler returned {len(result)} answers for {plural(jobs, 'job')}")
    )


def read_error(attempt: Attempt, error: BaseException) -> End:
    """Return the outcome of a handler that raised. If it stopped on request, it is the outcome of
    that request."""
    if isinstance(error, Outcome):
        return error
    if attempt.stop_outcome is not None and is_stop(error):
        return attempt.stop_outcome
    return Errored(error)


def is_stop(error: BaseException) -> bool:
    """Whether an error only says that the handler stopped on request; a task group wraps it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_stop, error.exceptions))
    return isinstance(error, asyncio.CancelledError | AttemptCancelled)


def hand_back_unstarted(attempt: Attempt, what: str, error: Exception, now: float) -> End:
    """Hand back a job for which the machine cannot start a thread or process: the job is not at
    fault."""
    job = attempt.job
    logger.error("job %s %s: no %s can be started for it: %s", job.id, job.job_type, what, error)
    attempt.began_at = None
    why = f"no {what} can be started for it: {error}"
    return attempt.find_obstacle(now) or HandedBack(why, UNSTARTED_S)


class Threads:
    """Daemon threads, as many as calls run at once; idle ones are used again.

    The standard pool's threads keep a process alive until they end. A handler that hangs must not.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._starting = threading.Lock()

    def submit(self, call: Callable[[], object]) -> None:
        """Run `call` in a thread; it must not raise.

        Raises:
            RuntimeError: the machine cannot start a thread; the call will not run.
        """
        if not self._idle.acquire(blocking=False):
            with self._starting:
                name = f"{self._name}-{self._count + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._count += 1
        self._work.put(call)

    def close(self) -> None:
        """Let idle threads end; one that still runs ends when its call returns."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            self._idle.release()
