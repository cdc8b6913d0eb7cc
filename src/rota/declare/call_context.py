"""The context of a call that takes many jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rota.declare.context import Context
from rota.declare.job_type import SenderOfJobs
from rota.declare.journal import Journal
from rota.errors import UsageError
from rota.model.job import Job

_making_items = threading.Lock()


class CallContext(Context):
    """The context of a handler that takes a list: `items` has the context of each job.

    `job` is the first job. Effects, steps, progress and completion, which belong to one job, are
    refused.
    """

    def __init__(
        self,
        job: Job,
        worker: str,
        state: Any,
        make_items: Callable[[], list[Context]],
        jobs: SenderOfJobs,
    ) -> None:
        super().__init__(job, worker, state, jobs=jobs)
        self._make_items = make_items
        self._items: list[Context] | None = None

    @property
    def items(self) -> Sequence[Context]:
        """The context of each job, in the order of the list."""
        if self._items is None:
            with _making_items:  # threads of one handler share them
                if self._items is None:
                    self._items = self._make_items()
                    self._stop_items()
        return self._items

    @property
    def time_left_s(self) -> float:
        """Seconds until the call reaches the timeout of the type; 0 or less: it has."""
        return max((item.time_left_s for item in self.items), default=0.0)  # none has more

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Refuse: progress belongs to one job."""
        self._refuse("progress")

    def complete(self, connection: Any, result: Any = None) -> Any:
        """Refuse: a connection finishes one job after the other."""
        self._refuse("complete")

    def _request_stop(self, why: str) -> None:
        super()._request_stop(why)
        self._stop_items()

    def _stop_items(self) -> None:
        if self._stopped is not None and self._items is not None:
            for item in self._items:
                item._request_stop(self._stopped)

    def _find_completer(self) -> NoReturn:
        self._refuse("transaction")

    def _find_journal(self) -> Journal:
        self._refuse("effect or step")

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(
            f"this call has many jobs, and {what} belongs to one of them: use ctx.items[i], where "
            "i is the job's place in the list"
        )
