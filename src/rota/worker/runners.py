"""Runners call handlers: on the worker's loop or in threads; `ProcessRunner` in processes.

A runner decides nothing. It tells the executor how a handler ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from rota.declare.around import Around
from rota.declare.declaration import Declaration
from rota.model.failure import list_names
from rota.model.outcome import End
from rota.model.units import plural
from rota.runtime.clock import Clock
from rota.worker.attempt import Attempt
from rota.worker.calls import CallRunner
from rota.worker.invoke import HandlerRun, ainvoke, invoke

logger = logging.getLogger("rota")

ASYNC_STOP_S = 1.0
"""How long an async handler may take to stop. A thread's attempt ends at once."""


class HearsEnds(Protocol):
    """Takes the outcomes of ended handlers, in the loop: the executor."""

    def handle_end(self, attempt: Attempt, end: End) -> None: ...


class Runnable(HandlerRun, Protocol):
    """An attempt, or a call of many."""

    task: asyncio.Task[None] | None
    began_at: float | None

    @property
    def name(self) -> str: ...

    def hand_back_unstarted(self, what: str, error: Exception, now: float) -> End: ...


R = TypeVar("R", bound=Runnable)


class Runner(Protocol):
    """One way to call handlers. All methods are called on the worker's loop."""

    @property
    def stop_s(self) -> float:
        """How long an attempt may last after its handler was asked to stop."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call the handler for attempts of one type, and return at once. The runner tells of each
        attempt when its handler has ended, or if its payload cannot be read."""

    def stop(self, attempt: Any) -> None:
        """Interrupt a handler that was asked to stop, if that is possible."""

    def close(self) -> None:
        """Release idle threads and processes. Busy ones end by themselves, or are killed."""


class Runners(dict["Declaration", Runner]):
    def __init__(
        self,
        worker: str,
        arounds: Sequence[Around],
        clock: Clock,
        executor: HearsEnds,
        processes: Runner | None,
        threads: Threads | None = None,
    ) -> None:
        """Without `processes` every handler runs here; `threads` are for plain handlers."""
        super().__init__()
        self._worker = worker
        self._executor = executor
        reader = Reader(executor)
        self._loop = LoopRunner(reader, arounds, clock)
        self._thread = ThreadRunner(reader, arounds, clock, threads or Threads("rota-handler"))
        self._process = processes

    def __missing__(self, job_type: Declaration) -> Runner:
        one = self._loop if job_type.is_async else self._thread
        runner: Runner = one
        if job_type.options.process is not None and self._process is not None:
            runner = self._process
        elif job_type.chunk is not None:
            runner = CallRunner(one, self._worker, self._executor.handle_end)
        self[job_type] = runner
        return runner

    def close(self) -> None:
        for runner in (self._loop, self._thread, self._process):
            if runner is not None:
                runner.close()


class Reader:
    """Reads the arguments of handlers, and tells of attempts whose payloads cannot be read."""

    def __init__(self, executor: HearsEnds) -> None:
        self.tell = executor.handle_end
        self._warned: set[Declaration] = set()

    def read(self, attempts: Sequence[Attempt]) -> Iterable[tuple[Attempt, dict[str, Any]]]:
        job_type = attempts[0].job_type
        found = job_type.read_many([attempt.job for attempt in attempts])
        if found is not None:
            return zip(attempts, found, strict=True)
        return self._read_each(attempts)

    def _read_each(self, attempts: Sequence[Attempt]) -> list[tuple[Attempt, dict[str, Any]]]:
        able = []
        for attempt in attempts:
            read = attempt.read_arguments()
            if isinstance(read, tuple):
                self.tell_unknown(attempt.job_type, read[1])
                able.append((attempt, read[0]))
            else:
                self.tell(attempt, read)
        return able

    def tell_unknown(self, job_type: Declaration, fields: frozenset[str]) -> None:
        """Log once that fields of a type's payloads are ignored: how many, as names are content."""
        if fields and job_type not in self._warned:
            self._warned.add(job_type)
            count, takes = plural(len(fields), "field"), list_names(job_type.codec.parameters)
            what = "job type %r: its handler does not take %s of a stored payload; it takes %s"
            logger.warning(what, job_type.name, count, takes or "no arguments")


class LoopRunner:
    stop_s = ASYNC_STOP_S

    def __init__(self, reader: Reader, arounds: Sequence[Around], clock: Clock) -> None:
        self._reader = reader
        self._arounds = arounds
        self._now = clock.monotonic
        self._loop = loop = asyncio.get_running_loop()
        # Every handler starts from the context variables of the worker, not of an ended handler.
        self._context = contextvars.copy_context()
        self._make_task: Callable[..., asyncio.Task[None]] | None = None
        """Makes a task; None: the application has set a task factory, which makes it."""
        if loop.get_task_factory() is None:
            self._make_task = partial(asyncio.Task, loop=loop)
            if sys.version_info >= (3, 12):
                # A handler takes its first step at once: if it never waits, it costs the loop
                # nothing.
                self._make_task = partial(asyncio.Task, loop=loop, eager_start=True)

    def begin(self, attempts: Sequence[Attempt]) -> None:
        reader = self._reader
        self.call(attempts[0].job_type, reader.read(attempts), reader.tell)

    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[R, dict[str, Any]]],
        tell: Callable[[R, End], None],
    ) -> None:
        copy, arounds, now = self._context.copy, self._arounds, self._now
        make_task = self._loop.create_task if self._make_task is None else self._make_task
        func, takes_context = job_type.func, job_type.takes_context
        for run, arguments in runs:
            given = (run.open_context(),) if takes_context else ()
            handled = ainvoke(run, partial(func, *given, **arguments), arounds, now, tell)
            task = make_task(handled, name=run.name, context=copy())
            if not task.done():
                run.task = task

    def stop(self, run: Runnable) -> None:
        if run.task is not None and run.began_at is not None:
            run.task.cancel()

    def tell_unknown(self, job_type: Declaration, fields: frozenset[str]) -> None:
        self._reader.tell_unknown(job_type, fields)

    def close(self) -> None: ...


class ThreadRunner:
    """Plain functions, in threads. A thread cannot be stopped from outside."""

    stop_s = 0.0

    def __init__(
        self, reader: Reader, arounds: Sequence[Around], clock: Clock, threads: Threads
    ) -> None:
        self._reader = reader
        self._arounds = arounds
        self._now = clock.monotonic
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        reader = self._reader
        self.call(attempts[0].job_type, reader.read(attempts), reader.tell)

    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[R, dict[str, Any]]],
        tell: Callable[[R, End], None],
    ) -> None:
        def tell_loop(run: R, end: End) -> None:
            # A closed loop: the worker has ended without this thread, and handed its job back.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(tell, run, end)

        for run, arguments in runs:
            given = (run.open_context(),) if job_type.takes_context else ()
            call = partial(job_type.func, *given, **arguments)
            enter = self._context.copy().run
            try:
                self._threads.submit(
                    partial(enter, invoke, run, call, self._arounds, self._now, tell_loop)
                )
            except RuntimeError as error:
                end = run.hand_back_unstarted("thread", error, self._now())
                self._loop.call_soon(tell, run, end)

    def stop(self, run: Runnable) -> None: ...

    def tell_unknown(self, job_type: Declaration, fields: frozenset[str]) -> None:
        self._reader.tell_unknown(job_type, fields)

    def close(self) -> None:
        self._threads.close()


class Threads:
    """Daemon threads, as many as calls run at once; idle threads are used again.

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
        """Let idle threads end; a busy thread ends when its call returns."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (call := self._work.get()) is not None:
            call()
            self._idle.release()
