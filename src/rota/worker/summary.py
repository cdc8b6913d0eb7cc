"""The result of a worker, and of one attempt."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.model.failure import one_line
from rota.model.job import Job, Status
from rota.model.outcome import End, Errored, Outcome, PayloadMismatch
from rota.model.record import Record


class Summary(Record, frozen=True):
    """What a worker has done when it ends."""

    claimed: int
    """How many jobs it claimed, counted again at each claim."""
    succeeded: int
    """How many attempts succeeded."""
    failed: int
    """How many attempts failed and are retried."""
    dead: int
    """How many attempts left the job dead."""
    oldest_due: datetime | None
    """When the oldest job that is still due was due; None: no job is, or no answer came."""

    paused: list[str] = msgspec.field(default_factory=list)
    """Its queues that were paused at the end, in order."""

    def line(self) -> str:
        """The last line of a drain."""
        paused = f", paused: {', '.join(map(one_line, self.paused))}" if self.paused else ""
        oldest = (
            "none" if self.oldest_due is None else self.oldest_due.isoformat(timespec="seconds")
        )
        counts = f"claimed {self.claimed}, succeeded {self.succeeded}, failed {self.failed}"
        return f"{counts}, dead {self.dead}, oldest due: {oldest}{paused}"


class Performed(msgspec.Struct, frozen=True):
    """What became of one attempt, and of its job."""

    job: Job
    """The job after the attempt."""
    attempt: int
    """The number of the attempt, from 1."""
    error: BaseException | None = None
    """What ended the attempt: the handler's exception, an outcome that it raised or returned, or
    why its payload could not be read. None: it succeeded, or its handler ran in another process."""

    @property
    def id(self) -> int:
        """The id of the job."""
        return self.job.id

    @property
    def status(self) -> Status:
        """The status of the job: succeeded, failed (it runs again at `job.run_at`), dead,
        cancelled; or queued: it was snoozed or returned."""
        return self.job.status

    @property
    def result(self) -> Any:
        """What the handler returned, in its JSON form."""
        return self.job.result


def find_error(end: End) -> BaseException | None:
    """Return the exception that ended an attempt; None: it succeeded, or ran in another process."""
    match end:
        case Errored(error) | PayloadMismatch(error):
            return error
        case Outcome():
            return end
    return None
