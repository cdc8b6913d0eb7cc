"""One attempt in a process: starts, watches and stops the handler, and reads how it ended."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import Any, Protocol

import msgspec

from rota.errors import ProcessDied
from rota.model.outcome import End, Failed, HandedBack, Interrupted
from rota.worker.attempt import Attempt
from rota.worker.processes import messages

START_S = 60.0
"""Seconds to import a handler. The attempt's own time begins after that."""
PROCESS_STOP_S = 0.4
"""Seconds that a handler has to stop before its process group is killed."""
CHECK_S = 0.1


class RunsHandlers(Protocol):
    """A process that runs handlers: `HandlerChild`, or one on a cluster."""

    is_up: bool
    is_ready: bool
    jobs: int

    def send(self, message: messages.ToProcess) -> None: ...
    def receive(self, timeout_s: float) -> Any: ...
    def kill(self) -> None: ...
    def end(self) -> object: ...


class ProcessNotStartedError(Exception):
    """The machine cannot start a process now."""


class HandlerNotStoppedError(Exception):
    """The handler did not stop in time, or may no longer begin."""


class ProcessAttempt:
    """An attempt in a process, for one thread. Of the attempt it sets `began_at` only."""

    def __init__(self, attempt: Attempt, process: RunsHandlers) -> None:
        assert attempt.context is not None
        self._attempt = attempt
        self._context = attempt.context
        self._claim = attempt.job.id, attempt.job.claims
        self._process = process
        self._ready_by = monotonic() + START_S
        self.has_begun = False
        """Whether the process has confirmed the job. Without that no handler has run."""
        self._stop_is_sent = False
        self._kill_at: float | None = None

    def run(self, arguments: bytes) -> End:
        """Return how the attempt ended.

        Raises:
            ProcessNotStartedError: the machine cannot start the process.
            ProcessDied: the process ended before the handler did.
            MemoryExceeded, HandlerNotStoppedError: the process must be killed.
        """
        failure = self._wait_until_ready()
        if failure is not None:
            return failure
        late = self._attempt.take_first_step(monotonic())  # its time begins now
        if late is not None:
            return late
        results = tuple(self._context.results.values())
        hidden = None if self._attempt.hidden is None else self._attempt.hidden.values
        self._process.jobs += 1
        attempt = self._attempt
        run = messages.RunJob(attempt.job, arguments, attempt.timeout_s, results, hidden)
        self._process.send(run)
        while True:
            match self._next():
                case messages.Begun():
                    self.has_begun = True
                case messages.Ended(end=end):
                    return end_stopped(self._attempt) if isinstance(end, messages.Stopped) else end
                case messages.Completing():
                    self._attempt.completes = True
                case messages.Progressed(progress_json=progress):
                    self._context.progress(**msgspec.json.decode(progress))

    def _wait_until_ready(self) -> Failed | None:
        if not self._process.is_ready:
            match self._next():
                case messages.NotReady(failure):
                    return Failed(failure)
                case messages.NotStarted(why):
                    raise ProcessNotStartedError(why)
            self._process.is_ready = True
        return None

    def _next(self) -> Any:
        """Return the process's next message that is not about another attempt; meanwhile check
        whether this attempt must stop."""
        while True:
            self._check()
            try:
                message = self._process.receive(CHECK_S)
            except ProcessDied as death:
                if not self._process.is_up:
                    raise ProcessNotStartedError(str(death)) from None
                raise
            if isinstance(message, messages.OfAttempt) and message.claim != self._claim:
                continue
            if message is not None:
                return message

    def _check(self) -> None:
        now = monotonic()
        why = self._context.cancelled
        if why is not None and not self._stop_is_sent:
            self._stop_is_sent = True
            self._process.send(messages.Stop(why))
        if self._attempt.stop_deadline < inf and self._kill_at is None:
            self._kill_at = now + PROCESS_STOP_S
        if self._kill_at is not None and now > self._kill_at:
            raise HandlerNotStoppedError
        if not self._process.is_ready and now > self._ready_by:
            raise ProcessDied(f"did not import its handler within {START_S:g} s")


def end_stopped(attempt: Attempt) -> End:
    """Return how an attempt ended that was stopped from outside."""
    if attempt.began_at is None:
        return attempt.find_obstacle(monotonic()) or HandedBack("the worker is going down")
    return attempt.stop_outcome or Interrupted("the worker went down while the handler ran")
