"""Runners call handlers: on the worker's loop, in threads, or in processes of their own. A runner
decides nothing: it tells the executor how a handler ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from rota.declare.around import Around
from rota.declare.declaration import Declaration
from rota.model.failure import error_type, list_names, message
from rota.model.outcome import Cancel, End, Errored
from rota.model.scrub import Hidden
from rota.model.units import plural
from rota.runtime.clock import Clock
from rota.worker.attempt import Attempt
from rota.worker.calls import NOBODY_LEFT, Call
from rota.worker.invoke import HandlerRun, ainvoke, invoke
from rota.worker.packs import Pack

logger = logging.getLogger("rota")

ASYNC_STOP_S = 1.0
"""How long an async handler may take to stop. A thread's attempt ends at once."""


class Runnable(HandlerRun, Protocol):
    """An attempt, or a call of many."""

    task: asyncio.Task[None] | None
    began_at: float | None

    @property
    def name(self) -> str: ...

    def hand_back_unstarted(self, what: str, error: Exception, now: float) -> End: ...


R = TypeVar("R", bound=Runnable)


class Runners(dict[Declaration, "Runner | CallRunner"]):
    def __init__(
        self,
        worker: str,
        arounds: Sequence[Around],
        clock: Clock,
        tell: Callable[[Attempt, End], None],
        processes: Runner | None,
        threads: Threads | None = None,
    ) -> None:
        """`tell` takes the outcomes, on the loop. Without `processes` every handler runs here;
        `threads` are for plain handlers."""
        super().__init__()
        self._worker = worker
        self._loop = LoopRunner(tell, arounds, clock)
        self._thread = ThreadRunner(tell, arounds, clock, threads or Threads("rota-handler"))
        self._process = processes

    def __missing__(self, job_type: Declaration) -> Runner | CallRunner:
        here: Runner = self._loop if job_type.is_async else self._thread
        runner: Runner | CallRunner = here
        if job_type.options.process is not None and self._process is not None:
            runner = self._process
        elif job_type.chunk is not None:
            runner = CallRunner(here, self._worker)
        self[job_type] = runner
        return runner

    def close(self) -> None:
        for runner in (self._loop, self._thread, self._process):
            if runner is not None:
                runner.close()


class Runner(ABC):
    """One way to call handlers. All methods are called on the worker's loop."""

    stop_s = 0.0
    """How long an attempt may last after its handler was asked to stop."""

    def __init__(self, tell: Callable[[Attempt, End], None]) -> None:
        self.tell = tell
        """Takes the outcome of a handler that has ended, or that will not be called."""
        self._loop = asyncio.get_running_loop()
        self._warned: set[Declaration] = set()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call the handler for attempts of one type, and return at once. Tell of each attempt when
        its handler has ended, or if its payload cannot be read."""
        job_type = attempts[0].job_type
        found = job_type.read_many([attempt.job for attempt in attempts])
        if found is None:
            self.call(job_type, self._read_each(attempts), self.tell)
        else:
            self.call(job_type, zip(attempts, found, strict=True), self.tell)

    @abstractmethod
    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[Any, dict[str, Any]]],
        tell: Callable[[Any, End], None],
    ) -> None:
        """Call the handler for attempts or for calls of many, each with its arguments."""

    def stop(self, run: Any) -> None:  # noqa: B027 - a thread cannot be stopped
        """Interrupt a handler that was asked to stop, if that is possible."""

    def close(self) -> None:  # noqa: B027 - tasks need no end
        """Release idle threads and processes. Busy ones end by themselves, or are killed."""

    def tell_unknown(self, job_type: Declaration, fields: frozenset[str]) -> None:
        """Log once that fields of a type's payloads are ignored: how many, as names are content."""
        if fields and job_type not in self._warned:
            self._warned.add(job_type)
            count, takes = plural(len(fields), "field"), list_names(job_type.codec.parameters)
            what = "job type %r: its handler does not take %s of a stored payload; it takes %s"
            logger.warning(what, job_type.name, count, takes or "no arguments")

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


class LoopRunner(Runner):
    """Async functions, in tasks of the worker's loop."""

    stop_s = ASYNC_STOP_S

    def __init__(
        self, tell: Callable[[Attempt, End], None], arounds: Sequence[Around], clock: Clock
    ) -> None:
        super().__init__(tell)
        self._arounds = arounds
        self._now = clock.monotonic
        # Every handler starts from the context variables of the worker, not of an ended handler.
        self._context = contextvars.copy_context()
        self._make_task: Callable[..., asyncio.Task[None]] = self._loop.create_task
        if self._loop.get_task_factory() is None:  # otherwise the application's factory makes it
            self._make_task = partial(asyncio.Task, loop=self._loop)
            if sys.version_info >= (3, 12):
                # A handler takes its first step at once: if it never waits, it costs the loop
                # nothing.
                self._make_task = partial(asyncio.Task, loop=self._loop, eager_start=True)

    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[R, dict[str, Any]]],
        tell: Callable[[R, End], None],
    ) -> None:
        copy, arounds, now, make_task = (
            self._context.copy,
            self._arounds,
            self._now,
            self._make_task,
        )
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


class ThreadRunner(Runner):
    """Plain functions, in threads. A thread cannot be stopped from outside."""

    def __init__(
        self,
        tell: Callable[[Attempt, End], None],
        arounds: Sequence[Around],
        clock: Clock,
        threads: Threads,
    ) -> None:
        super().__init__(tell)
        self._arounds = arounds
        self._now = clock.monotonic
        self._threads = threads
        self._context = contextvars.copy_context()

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

    def close(self) -> None:
        self._threads.close()


class CallRunner:
    """Calls handlers that take many jobs in one call, by way of the runner of one call."""

    def __init__(self, runner: Runner, worker: str) -> None:
        self._runner = runner
        self._worker = worker
        self.stop_s = runner.stop_s
        self._going_on: set[Pack] = set()
        """The packs whose next call is being made."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call the handler once for each complete pack. An attempt without a pack is alone."""
        packs: dict[Pack, None] = {}
        alone = []
        for attempt in attempts:
            pack = attempt.pack
            if isinstance(pack, Pack):
                pack.handed.add(attempt)
                packs[pack] = None
            else:
                alone.append(attempt)
        if alone:
            self._runner.begin(alone)
        for pack in packs:
            pack.go_on = self._go_on
            self._go_on(pack)

    def stop(self, attempt: Attempt) -> None:
        """Interrupt the call of an attempt that was asked to stop, if the call has no other."""
        if attempt.pack is None:
            self._runner.stop(attempt)
            return
        call = attempt.pack.current
        if isinstance(call, Call) and attempt in call.attempts and not call.find_live():
            is_own = attempt.is_lost or isinstance(attempt.stop_outcome, Cancel)
            why = None if attempt.stopped is None else attempt.stopped.why
            call.request_stop(NOBODY_LEFT if is_own else why or NOBODY_LEFT)
            self._runner.stop(call)

    def _go_on(self, pack: Pack) -> None:
        """Make the next call of a pack that has all its jobs, unless a call runs. From Python 3.12
        a call may be over before the runner returns; then this loop goes on."""
        if pack in self._going_on:
            return
        self._going_on.add(pack)
        try:
            while pack.current is None:
                if pack.handed and len(pack.handed) == len(pack.seated):
                    attempts = [attempt for attempt in pack.attempts if attempt in pack.handed]
                    pack.handed.clear()
                    pack.calls.append(Call(pack, attempts, self._worker))
                if not pack.calls:
                    return
                pack.current = call = pack.calls.popleft()
                call.items = self._read_items(call)
                if not call.attempts:
                    pack.current = None
                    continue
                codec = call.job_type.item_codec
                assert codec is not None
                given = {codec.parameter: call.items}
                self._runner.call(call.job_type, [(call, given)], self._take_end)
        finally:
            self._going_on.remove(pack)

    def _read_items(self, call: Call) -> list[Any]:
        """Return the items of a call. End the attempts whose items cannot be read."""
        for attempt in call.attempts:
            if attempt.outcome is not None:  # it was stopped meanwhile
                self._runner.tell(attempt, attempt.outcome)
        call.attempts = [attempt for attempt in call.attempts if attempt.outcome is None]
        found = call.job_type.read_items([attempt.job for attempt in call.attempts])
        if found is not None:
            items, unknown = found
            self._runner.tell_unknown(call.job_type, unknown)
            return items
        items, attempts = [], []
        for attempt in call.attempts:
            read = attempt.read_item()
            if not isinstance(read, tuple):
                self._runner.tell(attempt, read)
                continue
            items.append(read[0])
            attempts.append(attempt)
            self._runner.tell_unknown(call.job_type, read[1])
        call.attempts = attempts
        if [1 for attempt in attempts if attempt.hidden is not None]:
            # An error of the call may have the values of any job.
            hidden = Hidden.merge([attempt.hidden for attempt in attempts])
            for attempt in attempts:
                attempt.hidden = hidden
        return items

    def _take_end(self, call: Call, end: End) -> None:
        """End the attempts of a call that ended, or call the handler again with each half."""
        call.task = None  # it knows the call, too
        jobs = len(call.called)
        halves = call.find_halves(end)
        if halves:
            _tell_split(call, jobs, end.error if isinstance(end, Errored) else end)
        for attempt, its in call.sort_ends(end):
            self._runner.tell(attempt, its)
        call.pack.calls.extendleft(reversed(halves))
        call.pack.current = None
        self._go_on(call.pack)


class Threads:
    """Daemon threads, as many as calls run at once; idle threads are used again. Threads of the
    standard pool would keep a process alive whose handler hangs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._starting = threading.Lock()

    def submit(self, call: Callable[[], object]) -> None:
        """Run `call`, which must not raise. Raises RuntimeError if no thread can be started."""
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


def _tell_split(call: Call, jobs: int, raised: object) -> None:
    assert isinstance(raised, BaseException)
    level = logging.DEBUG if call.is_part else logging.WARNING
    logger.log(
        level,
        "job type %s: a call of %d jobs failed with %s: %s. Each half is called again, to find the "
        "job at fault",
        call.job_type.name, jobs, error_type(raised), message(raised),
    )  # fmt: skip
