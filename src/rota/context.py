"""What a running handler can ask: which job it is, what the worker shares, and whether it should stop."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from rota.errors import AttemptCancelled, UsageError

if TYPE_CHECKING:
    from rota.job import Job

_current: ContextVar[Context] = ContextVar("rota_context")


class Context:
    """The attempt that runs. Passed first to handlers declared with `takes_context=True`; elsewhere `rota.context()` gives it, in threads too."""

    __slots__ = ("_stopped", "job", "state", "worker")

    def __init__(self, job: Job, worker: str, state: Any = None) -> None:
        self.job = job
        """The job as claimed; `job.attempts` counts the attempt that runs."""
        self.worker = worker
        """The worker's id, as in `locked_by`."""
        self.state = state
        """What the App's lifespan yielded in this process; None without one."""
        self._stopped: str | None = None

    @property
    def cancelled(self) -> str | None:
        """Why the attempt should stop: it timed out, lost its lease, or the worker is going down; None while it should go on."""
        return self._stopped

    def raise_if_cancelled(self) -> None:
        """Raise `AttemptCancelled` when the attempt should stop. A plain function calls it between steps: a thread cannot be stopped from outside."""
        if self._stopped is not None:
            raise AttemptCancelled(self._stopped)

    def tell_to_stop(self, why: str) -> None:
        """Make `raise_if_cancelled` raise from now on. Called by the worker, from any thread; the first reason stays."""
        if self._stopped is None:
            self._stopped = why


def context() -> Context:
    """Return the context of the attempt that runs in this task or thread.

    Raises:
        UsageError: when no handler is running here.
    """
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            f"rota.context() was called outside a running job (thread {threading.current_thread().name}); only a handler has one"
        ) from None


def enter(value: Context) -> None:
    """Make `value` the context of the current task or copied context."""
    _current.set(value)
