"""What a running handler can ask and say: which job it is, what the worker shares, whether it should stop, how far it has come."""

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
"""Up to it every whole number is the same in JSON's readers."""

_current: ContextVar[Context] = ContextVar("rota_context")


class Context:
    """The attempt that runs. Passed first to handlers declared with `takes_context=True`; elsewhere `rota.context()` gives it, in threads too."""

    __slots__ = ("_on_progress", "_said", "_stopped", "job", "state", "worker")

    def __init__(
        self,
        job: Job,
        worker: str,
        state: Any = None,
        on_progress: Callable[[Context], None] | None = None,
    ) -> None:
        self.job = job
        """The job as claimed; `job.attempts` counts the attempt that runs."""
        self.worker = worker
        """The worker's id, as in `locked_by`."""
        self.state = state
        """What the App's lifespan yielded in this process; None without one."""
        self._stopped: str | None = None
        self._said: tuple[float, float | None, str | None] | None = None
        self._on_progress = on_progress

    @property
    def scheduled_for(self) -> datetime | None:
        """The tick of the schedule that the job is a run of: the same at every attempt, however late it runs. None for a job of no schedule, and when
        somebody triggered it."""
        return self.job.scheduled_for

    @property
    def cancelled(self) -> str | None:
        """Why the attempt should stop: the job was cancelled, it timed out, lost its lease, or the worker is going down; None while it should go on."""
        return self._stopped

    def raise_if_cancelled(self) -> None:
        """Raise `AttemptCancelled` when the attempt should stop. A plain function calls it between steps: a thread cannot be stopped from outside."""
        if self._stopped is not None:
            raise AttemptCancelled(self._stopped)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the attempt has come. From any thread, as often as you like: the worker stores the latest, about once a second, while it runs.

        What was said less than a second before the handler ended may never be stored: then the job's status says more. It stays with the job until
        it is said anew, in the next attempt too.

        Args:
            done: how much is done, 0 … 2**53.
            total: of how much, if that is known, 0 … 2**53.
            note: what is being done; kept on one line of at most 200 characters.

        Raises:
            UsageError: a number is negative, too large or none at all; the note is not a text.
        """
        if note is not None and not isinstance(note, str):
            raise UsageError(f"progress: note must be a string, not {note!r}")
        self._said = (
            _amount(done, "done"),
            None if total is None else _amount(total, "total"),
            note,
        )
        if self._on_progress is not None:
            self._on_progress(self)

    def encode_progress(self) -> str:
        """Return what `progress` was told last, in JSON. Called by the worker, from any thread, after it was told something."""
        assert self._said is not None
        done, total, note = self._said
        return msgspec.json.encode(
            {
                "done": done,
                "total": total,
                "note": (one_line(note, NOTE_MAX) if note else "") or None,
            }
        ).decode()

    def tell_to_stop(self, why: str) -> None:
        """Make `raise_if_cancelled` raise from now on. Called by the worker, from any thread; the first reason stays."""
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
    """Return the context of the attempt that runs in this task or thread.

    Raises:
        UsageError: when no handler is running here.
    """
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            "rota.context() was called outside a running job "
            f"(thread {threading.current_thread().name}); only a handler has a context"
        ) from None


def current(of: contextvars.Context) -> Context | None:
    """Return the Context that a task or thread with these variables has; None when no handler runs there."""
    return of.get(_current)


def enter(value: Context) -> None:
    """Make `value` the context of the current task or copied context."""
    _current.set(value)
