"""Worker lifecycle events."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.model.units import plural
from rota.observe.events.event import Event

SHOWN_MAX = 20
"""Most ids in a line of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker is about to claim."""

    line = "worker {worker} started, release {release}, queues {queues}; {urgent_slots}"
    worker: str
    """Name of the worker."""
    release: str
    """Release of its code."""
    queues: str
    """Its queues with their slots, in words."""
    urgent_slots: str
    """How many of the slots are for jobs with a priority above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker has ended. An ERROR if it could not record all that its jobs had done."""

    worker: str
    """Name of the worker."""
    unwritten: tuple[int, ...] = ()
    """Ids of jobs whose outcomes are lost with it, because the database did not take them: they run
    again when their leases expire."""

    @property
    def level_now(self) -> int:
        return logging.ERROR if self.unwritten else self.level

    def _describe(self) -> str:
        if not self.unwritten:
            return f"worker {self.worker} stopped"
        jobs = plural(len(self.unwritten), "job")
        more = ", …" if len(self.unwritten) > SHOWN_MAX else ""
        shown = ", ".join(map(str, self.unwritten[:SHOWN_MAX])) + more
        return (
            f"worker {self.worker} stopped, and the database took no outcome of {jobs} ({shown}): "
            "they run again when their leases expire"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """The worker's event loop is blocked: nothing of the worker runs but the renewal of its leases.

    Emitted once after a second, and again when the loop is free (`over`).
    """

    level = logging.WARNING
    job: int | None
    """Id of the job whose handler runs on the loop; None: it is no handler."""
    job_type: str | None
    """Name of its type; None likewise."""
    blocked_s: float
    """Seconds that the loop has been blocked."""
    place: str
    """The line that blocks it, as in "/srv/shop/mail.py:12 in send"."""
    over: bool
    """Whether the loop is free again."""

    def _describe(self) -> str:
        who = "code outside handlers" if self.job is None else f"job {self.job} {self.job_type}"
        verb = "blocked" if self.over else "has been blocking"
        return f"{who} {verb} the event loop for {self.blocked_s:.1f} s at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(Event):
    """A part of the worker could not reach the database and tries again."""

    level = logging.WARNING
    service: str
    """The part of the worker, such as `claimer`."""
    reason: str
    """What went wrong, in words."""
    retry_in_s: float
    """Seconds until the next try."""
    refused: bool = False
    """Whether the database answered, and refused what this part wants to do."""

    def _describe(self) -> str:
        what = "failed" if self.refused else "database unavailable"
        return f"{self.service}: {what}, next try in {self.retry_in_s:.1f} s: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopied(Event):
    """This is a restored copy: the worker claims nothing and does no maintenance until you release
    it.

    Emitted once a minute.
    """

    level = logging.ERROR
    line = "this is a restored copy ({reason}): nothing runs until `rota queues resume --copy`"
    reason: str
    """How the database differs from what it recorded of itself."""
