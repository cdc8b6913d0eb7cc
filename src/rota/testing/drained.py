"""What a drain of a test ran."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from rota.model.failure import one_line
from rota.model.job import Status
from rota.model.units import plural
from rota.worker.summary import Performed

STACK_LINES_MAX = 6
"""Last lines of a traceback that a message shows."""


@dataclass(frozen=True, slots=True, repr=False)
class Drained:
    """What a drain ran."""

    performed: list[Performed]
    """The attempts, in order."""

    def count(self, status: Status) -> int:
        """Return how many attempts ended with this status of their job."""
        return sum(attempt.status is status for attempt in self.performed)

    @property
    def succeeded(self) -> int:
        """Number of jobs that succeeded."""
        return self.count(Status.SUCCEEDED)

    @property
    def failed(self) -> int:
        """Number of attempts that failed and whose jobs will be retried."""
        return self.count(Status.FAILED)

    @property
    def dead(self) -> int:
        """Number of jobs that are dead."""
        return self.count(Status.DEAD)

    def explain_errors(self) -> str:
        """Return the errors of dead and failed jobs for a person; empty: there are none."""
        ended = (Status.DEAD, Status.FAILED)
        failed = [attempt for attempt in self.performed if attempt.status in ended]
        return "".join(map(_explain_error, failed))

    def __repr__(self) -> str:
        counts = f"succeeded {self.succeeded}, failed {self.failed}, dead {self.dead}"
        return (
            f"<drained {plural(len(self.performed), 'attempt')}: {counts}>{self.explain_errors()}"
        )


def _explain_error(attempt: Performed) -> str:
    job = attempt.job
    line = f"\n  job {job.id} {job.job_type} is {job.status}: {job.error_type}: {job.last_error}"
    if attempt.error is None:
        return line
    lines = "".join(traceback.format_exception(attempt.error)).splitlines()
    return line + "".join(f"\n    | {one_line(text, 200)}" for text in lines[-STACK_LINES_MAX:])
