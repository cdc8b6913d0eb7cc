"""Handlers that run in processes of their own: which process runs what, and who looks after an attempt. What happens inside is in child.py.

A thread of the worker's looks after each attempt, so that it needs no event loop to kill one. It leaves when there is an end, and when
nothing of what has to die is left.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import MemoryExceeded, ProcessDied
from rota.model.outcome import (
    Cancel,
    Dead,
    End,
    Errored,
    Failed,
    HandedBack,
    Interrupted,
    Retry,
    Snooze,
    Succeeded,
)
from rota.worker.groups import Memory
from rota.worker.messages import (
    Begun,
    Ended,
    NotReady,
    NotStarted,
    Progressed,
    Run,
    Said,
    Stop,
    Stopped,
)
from rota.worker.process import Process
from rota.worker.reach import setup_of
from rota.worker.runners import Threads, hand_back_unstarted

if TYPE_CHECKING:
    from rota.declare.context import Context
    from rota.worker.attempt import Attempt

START_S = 60.0
"""How long a process may take to import its handler; the attempt's own time begins after that."""
TOLD_S = 0.4
"""How long a handler that was told to stop may take to do so before its process group is killed."""
LOOK_S = 0.1
"""How often is looked whether the attempt should stop."""
MEMORY_LOOK_S = 0.5
"""How often is looked at its memory."""
IDLE_S = 60.0
"""How long a process waits for the next job of its type before it is ended."""


class Processes:
    """The processes of one worker: one for each running job that wants one; idle ones are used again for jobs of the same type."""

    def __init__(self, worker: str, module: str | None) -> None:
        self._worker = worker
        self._module = module
        self._threads = Threads("rota-process")
        self._memory = Memory()
        self._idle: defaultdict[str, list[Process]] = defaultdict(list)
        self._living: set[Process] = set()
        self._closed = False

    async def attempt(self, attempt: Attempt, arguments: dict[str, Any]) -> End:
        """Run a job and return what it came to. It never raises: cancelling it tells the handler to stop, and it returns when that is over."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[tuple[End, Process | None]] = loop.create_future()
        idle = self._idle[attempt.job_type.name]
        process = idle.pop() if idle else None

        def call() -> None:
            came_to = self._look_after(attempt, arguments, process)
            with suppress(
                RuntimeError
            ):  # the loop is closed, and the process was killed before that
                loop.call_soon_threadsafe(over.set_result, came_to)

        try:
            self._threads.submit(call)
        except RuntimeError as error:  # nobody would look after the process
            if process is not None:
                idle.append(process)
            return hand_back_unstarted(attempt, "process", error, monotonic())
        while not over.done():
            try:
                await asyncio.shield(over)
            except asyncio.CancelledError:
                assert attempt.context is not None
                attempt.context.tell_to_stop(
                    "the worker is going down"
                )  # unless it was told another reason before
        end, process = over.result()
        if process is not None:
            self._keep(attempt.job_type.name, process, loop)
        return end

    def close(self) -> None:
        """Kill every process that is left, idle or not."""
        self._closed = True
        for process in list(self._living):
            process.kill()
        for idle in self._idle.values():
            while idle:
                self._end(idle.pop())
        self._threads.close()

    def _keep(self, name: str, process: Process, loop: asyncio.AbstractEventLoop) -> None:
        if self._closed:
            process.end()
            return
        self._idle[name].append(process)
        loop.call_later(IDLE_S, self._end_idle, name, process, process.jobs)

    def _end_idle(self, name: str, process: Process, jobs: int) -> None:
        if process.jobs == jobs and process in self._idle[name]:
            self._idle[name].remove(process)
            self._end(process)

    def _end(self, process: Process) -> None:
        try:
            self._threads.submit(process.end)
        except RuntimeError:  # no thread is to be had: here, which takes a moment
            process.end()

    # In a thread

    def _look_after(
        self, attempt: Attempt, arguments: dict[str, Any], process: Process | None
    ) -> tuple[End, Process | None]:
        """Return what the attempt came to, and its process when that can be used again."""
        settings = attempt.job_type.settings.process
        assert settings is not None
        assert attempt.context is not None
        end: End | None = None
        reusable = False
        try:
            run = Run(attempt.job, pickle.dumps(arguments))
            while end is None:
                is_used = process is not None
                process = process or self._started(attempt)
                if self._closed:
                    process.kill()
                watch = _Watch(
                    attempt, attempt.context, process, self._memory, settings.memory_bytes_max
                )
                try:
                    end = watch.until_end(run)
                except ProcessDied:
                    if not is_used or watch.has_begun or self._closed:
                        raise
                    process = None  # it died while it had nothing to do, or before it saw that it has: no fault of this job's
                    attempt.began_at = None
            reusable = (
                process is not None and process.is_ready and process.jobs < settings.recycle_after
            )
        except _NotStoppedError:
            end = _stopped(attempt)
        except _NotStartedError as error:
            end = (
                _stopped(attempt)
                if self._closed
                else hand_back_unstarted(attempt, "process", error, monotonic())
            )
        except Exception as error:  # noqa: BLE001 - the process died or must be killed, arguments may not pickle
            # Where in the worker it was noticed helps nobody.
            end = _stopped(attempt) if self._closed else Errored(error.with_traceback(None))
        if process is not None and not reusable:
            process.end()
            process = None
        return end, process

    def _started(self, attempt: Attempt) -> Process:
        try:
            return Process(setup_of(attempt.job_type, self._worker, self._module), self._living)
        except (
            OSError,
            ProcessDied,
        ) as error:  # too many files or processes, no memory, no interpreter: nothing of the job's
            raise _NotStartedError(str(error)) from None


def _stopped(attempt: Attempt) -> End:
    """What an attempt came to that was stopped from outside."""
    if attempt.began_at is None:
        return attempt.find_obstacle(monotonic()) or HandedBack("the worker is going down")
    return attempt.stop_outcome or Interrupted("the worker went down while the handler ran")


class _Watch:
    """One attempt: begins it, waits for its end, looks whether it must be stopped."""

    def __init__(
        self,
        attempt: Attempt,
        context: Context,
        process: Process,
        memory: Memory,
        memory_bytes_max: int | None,
    ) -> None:
        self._attempt = attempt
        self._claim = attempt.job.id, attempt.job.claims
        self._context = context
        self._process = process
        self._memory = memory
        self._memory_bytes_max = memory_bytes_max
        self._memory_look_at = 0.0
        self._start_by = monotonic() + START_S
        self.has_begun = False
        """Whether the process has the job: without its word for that no handler has run."""
        self._is_told = False
        self._kill_at: float | None = None

    def until_end(self, run: Run) -> End:
        """Return what the attempt came to.

        Raises:
            _NotStartedError: the machine does not give the process what it needs.
            ProcessDied: the process ended before the handler did.
            MemoryExceeded: the process must be killed.
            _NotStoppedError: likewise, because the handler must stop and did not, or must not begin any more.
        """
        if not self._process.is_ready:
            match self._next():
                case NotReady(failure):
                    return Failed(failure)
                case NotStarted(why):
                    raise _NotStartedError(why)
            self._process.is_ready = True
        # The time that it took to import the handler is not the attempt's.
        late = self._attempt.take_first_step(monotonic())
        if late is not None:
            return late
        self._process.tell(run)
        while True:
            match self._next():
                case Begun():
                    self.has_begun = True
                case Ended(job, claim, end) if (job, claim) == self._claim:
                    return self._end(end)
                case Progressed(job, claim, said) if (job, claim) == self._claim:
                    self._context.progress(**msgspec.json.decode(said))

    def _next(self) -> Any:
        while True:
            self._look()
            try:
                message = self._process.hear(LOOK_S)
            except ProcessDied as death:
                if not self._process.is_up:
                    raise _NotStartedError(str(death)) from None
                raise
            if message is not None:
                return message

    def _look(self) -> None:
        now, attempt = monotonic(), self._attempt
        why = self._context.cancelled
        if why is not None and not self._is_told:
            self._is_told = True
            self._process.tell(Stop(why))
        if attempt.stop_deadline is not None and self._kill_at is None:
            self._kill_at = now + TOLD_S
        if self._kill_at is not None and now > self._kill_at:
            raise _NotStoppedError
        if not self._process.is_ready and now > self._start_by:
            raise ProcessDied(f"did not import its handler within {START_S:g} s")
        if self._memory_bytes_max is not None and now >= self._memory_look_at:
            self._memory_look_at = now + MEMORY_LOOK_S
            used_bytes = self._memory.resident_bytes(self._process.pid)
            if used_bytes > self._memory_bytes_max:
                raise MemoryExceeded(self._memory_bytes_max, used_bytes)

    def _end(self, end: Succeeded | Failed | Said | Stopped) -> End:
        match end:
            case Said("Retry", reason, after_s):
                return Retry(reason, after=None if after_s is None else timedelta(seconds=after_s))
            case Said("Snooze", reason, after_s):
                return Snooze(timedelta(seconds=after_s or 0), reason)
            case Said("Dead", reason):
                return Dead(reason)
            case Said(_, reason):
                return Cancel(reason)
            case Stopped():
                return _stopped(self._attempt)
            case _:
                return end


class _NotStartedError(Exception):
    """This machine gives the worker no process now."""


class _NotStoppedError(Exception):
    """The handler was told to stop and goes on, or must not begin any more."""
