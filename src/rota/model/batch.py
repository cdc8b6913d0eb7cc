"""What a batch is: jobs that are followed as one. Pure: no I/O, no clock."""

from __future__ import annotations

from datetime import datetime

from rota.model.record import Record

META_KEY = "rota.batch"
"""Where the meta of a job that follows a batch says how the batch ended."""


class BatchEnd(Record, frozen=True):
    """How the members of a batch ended, as the job that follows the batch is told."""

    id: int
    """Id of the batch."""
    total: int
    """How many members it has."""
    succeeded: int
    """How many members succeeded."""
    dead: int
    """How many members are dead."""
    cancelled: int
    """How many members were cancelled."""

    @property
    def failed(self) -> int:
        """How many members did not succeed."""
        return self.dead + self.cancelled


class Batch(Record, frozen=True):
    """A batch as it was when it was read: one row of the view `rota.batches`."""

    id: int
    """Identifies the batch."""
    parent: int | None
    """The batch of which it is a member; None: no batch."""
    total: int
    """How many members it has: jobs, and batches whose parent it is."""
    succeeded: int
    """How many members have succeeded."""
    dead: int
    """How many members are dead, by expiry or failed attempts. A requeued member does not count."""
    cancelled: int
    """How many members were cancelled."""
    on_failure: str
    """What a member that did not succeed means for the job that follows: `continue` or `wait`."""
    outcome: str | None
    """`succeeded` or `failed` (some did not succeed); None: not all members have ended."""
    created_at: datetime
    """When it was made, an aware datetime."""
    ended_at: datetime | None
    """When all members had ended for the first time, an aware datetime; None: they have not."""
    then_at: datetime | None
    """When the job that follows was enqueued; None: not yet, or none follows."""
    then_job: int | None
    """The job that follows; None: not yet, none, or its key joined it to another job."""
    then_error: str | None
    """Why the database did not take the job that follows; it is tried again."""

    def __repr__(self) -> str:
        return f"<batch {self.id}, {self.ended} of {self.total} ended>"

    @property
    def ended(self) -> int:
        """How many members have ended."""
        return self.succeeded + self.dead + self.cancelled

    @property
    def live(self) -> int:
        """How many members have not ended."""
        return self.total - self.ended
