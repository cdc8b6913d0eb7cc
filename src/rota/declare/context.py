"""The context of a running handler: its job, the shared state, stop requests and progress."""

from __future__ import annotations

import contextvars
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import AttemptCancelled, UsageError
from rota.model.failure import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rota.model.job import Job

NOTE_MAX = 200
PROGRESS_MOST = 2**53
"""Up to this, every JSON reader keeps a whole number exact."""

_current: ContextVar[Context] = ContextVar("rota_context")


class Context:
    """The running attempt. The first argument of handlers declared with `takes_context=True`;
    `rota.context()` returns it too, also in threads."""

    __slots__ = ("_on_progress", "_progress", "_stopped", "job", "state", "worker")

    def __init__(
        self,
        job: Job,
        worker: str,
        state: Any = None,
        on_progress: Callable[[Context], None] | None = None,
    ) -> None:
        self.job = job
        """The job as claimed; `job.attempts` counts this attempt."""
        self.worker = worker
        """The worker's id, as in `locked_by`."""
        self.state = state
        """What the App's lifespan yielded in this process; None without one."""
        self._stopped: str | None = None
        self._progress: tuple[float, float | None, str | None] | None = None
        self._on_progress = on_progress

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that enqueued the job: the same at every attempt, however late
        it runs. None if no schedule enqueued it, or if a person triggered it."""
        return self.job.scheduled_for

    @property
    def cancelled(self) -> str | None:
        """Why the attempt should stop: the job was cancelled, it timed out, lost its lease, or the
        worker is going down. None: it should continue."""
        return self._stopped

    def raise_if_cancelled(self) -> None:
        """Raise `AttemptCancelled` if the attempt should stop. Plain functions call it between
        steps, because a thread cannot be stopped from outside."""
        if self._stopped is not None:
            raise AttemptCancelled(self._stopped)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress. From any thread, as often as you like: while the handler runs, the
        worker stores the latest report about once a second.

        A report from the last second before the handler ends may never be stored. A stored report
        stays with the job until the next one, also into the next attempt.

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
            note,
        )
        if self._on_progress is not None:
            self._on_progress(self)

    def encode_progress(self) -> str:
        """Return the latest progress report in JSON. Called by the worker after a report, from any
        thread."""
        assert self._progress is not None
        done, total, note = self._progress
        return msgspec.json.encode(
            {
                "done": done,
                "total": total,
                "note": (one_line(note, NOTE_MAX) if note else "") or None,
            }
        ).decode()

    def request_stop(self, why: str) -> None:
        """Make `raise_if_cancelled` raise from now on. Called by the worker, from any thread; the
        first reason stays."""
        if self._stopped is None:
            self._stopped = why


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
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            "rota.context() was called outside a running job "
            f"(thread {threading.current_thread().name}); only a handler has a context"
        ) from None


def current(of: contextvars.Context) -> Context | None:
    """Return the Context of a task or thread with these variables; None if no handler runs
    there."""
    return of.get(_current)


def enter(value: Context) -> None:
    """Make `value` the context of the current task or copied context."""
    _current.set(value)
