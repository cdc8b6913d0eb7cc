"""Runs handlers in processes of their own: chooses the process of each job, and ends idle ones."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any

from rota.declare.declaration import Declaration
from rota.declare.groups import CLUSTERS
from rota.errors import ProcessDied
from rota.model.outcome import End, Errored
from rota.store.db import Database
from rota.worker.attempt import Attempt
from rota.worker.processes.handler_child import HandlerChild
from rota.worker.processes.importable import describe_handler
from rota.worker.processes.process_attempt import (
    HandlerNotStoppedError,
    ProcessAttempt,
    ProcessNotStartedError,
    RunsHandlers,
    end_stopped,
)
from rota.worker.runners import Runner, Threads
from rota.worker.spec import WorkerSpec

IDLE_S = 60.0
KILL_S = 10.0
"""Seconds from the request to stop until the attempt ends without its process. The kill comes long
before, after `PROCESS_STOP_S`; a killed process may take a while to go."""


class ProcessRunner(Runner):
    """Handlers in processes of their own: a process for each running job. An idle process is used
    again for its type. An attempt is stopped when its context asks.

    A thread owns each process that runs a job, so that a kill needs no event loop. It gives the
    process back when the attempt has ended and all that had to die is gone. The worker's loop owns
    idle processes.
    """

    stop_s = KILL_S

    def __init__(
        self, tell: Callable[[Attempt, End], None], spec: WorkerSpec, database: Database
    ) -> None:
        super().__init__(tell)
        self._spec = spec
        self._database = database
        self._threads = Threads("rota-process")
        self._idle: defaultdict[str, list[RunsHandlers]] = defaultdict(list)
        """By job type. For the loop only."""
        self._living: set[RunsHandlers] = set()
        """Idle or not. Threads add and remove; `close` reads a copy."""
        self._closed = False

    def call(
        self,
        job_type: Declaration,
        runs: Iterable[tuple[Attempt, dict[str, Any]]],
        tell: Callable[[Attempt, End], None],
    ) -> None:
        for attempt, arguments in runs:
            attempt.open_context()
            idle = self._idle[attempt.job_type.name]
            process = idle.pop() if idle else None
            try:
                self._threads.submit(partial(self._attempt, attempt, arguments, process))
            except RuntimeError as error:  # no thread
                end = attempt.hand_back_unstarted("process", error, monotonic())
                self._loop.call_soon(self._take_end, attempt, end, process)

    def close(self) -> None:
        self._closed = True
        for process in list(self._living):
            process.kill()
        for idle in self._idle.values():
            while idle:
                self._end_soon(idle.pop())
        self._threads.close()

    def _take_end(self, attempt: Attempt, end: End, process: RunsHandlers | None) -> None:
        if process is not None and self._closed:
            self._end(process)
        elif process is not None:
            name = attempt.job_type.name
            self._idle[name].append(process)
            self._loop.call_later(IDLE_S, self._end_idle, name, process, process.jobs)
        self.tell(attempt, end)

    def _end_idle(self, name: str, process: RunsHandlers, jobs: int) -> None:
        if process.jobs == jobs and process in self._idle[name]:
            self._idle[name].remove(process)
            self._end_soon(process)

    def _end_soon(self, process: RunsHandlers) -> None:
        try:
            self._threads.submit(lambda: self._end(process))
        except RuntimeError:  # no thread: here, which takes a moment
            self._end(process)

    # In the thread of an attempt

    def _attempt(
        self, attempt: Attempt, arguments: dict[str, Any], process: RunsHandlers | None
    ) -> None:
        end, process = self._run(attempt, arguments, process)
        with suppress(RuntimeError):  # the loop is closed, and the process was killed before
            self._loop.call_soon_threadsafe(self._take_end, attempt, end, process)

    def _run(
        self, attempt: Attempt, arguments: dict[str, Any], process: RunsHandlers | None
    ) -> tuple[End, RunsHandlers | None]:
        """Return how the attempt ended, and its process if that can be used again."""
        settings = attempt.job_type.options.process
        assert settings is not None
        was_idle, is_reusable = process is not None, False
        try:
            pickled = pickle.dumps(arguments)
            process = process or self._start(attempt)
            watched = ProcessAttempt(attempt, process)
            end = watched.run(pickled)
            is_reusable = process.is_ready and process.jobs < settings.recycle_after
            is_reusable = is_reusable and settings.cluster is None  # idle it would take a place
        except ProcessDied as death:
            if was_idle and process is not None and not watched.has_begun and not self._closed:
                self._end(process)  # it died before it had the job, so the job is not at fault
                attempt.began_at = None
                return self._run(attempt, arguments, None)
            end = self._end_by_error(attempt, death)
        except Exception as error:  # noqa: BLE001 - arguments may not pickle, …
            end = self._end_by_error(attempt, error)
        if process is not None and not is_reusable:
            self._end(process)
            process = None
        return end, process

    def _end_by_error(self, attempt: Attempt, error: Exception) -> End:
        if self._closed or isinstance(error, HandlerNotStoppedError):
            return end_stopped(attempt)
        if isinstance(error, ProcessNotStartedError):
            return attempt.hand_back_unstarted("process", error, monotonic())
        return Errored(error.with_traceback(None))  # the worker's frames do not help

    def _start(self, attempt: Attempt) -> RunsHandlers:
        setup = describe_handler(attempt.job_type, self._spec, self._database)
        settings = attempt.job_type.options.process
        assert settings is not None
        process: RunsHandlers
        try:
            process = (
                HandlerChild(setup, settings.memory_bytes_max)
                if settings.cluster is None
                else import_module(CLUSTERS[settings.cluster]).start(attempt, setup)
            )
        except OSError as error:  # no files, no memory: not the job's fault
            raise ProcessNotStartedError(str(error)) from None
        self._living.add(process)
        if self._closed:
            process.kill()
        return process

    def _end(self, process: RunsHandlers) -> None:
        process.end()
        self._living.discard(process)
