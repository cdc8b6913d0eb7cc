"""Worker lifecycle events."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker is about to claim."""

    line = "worker {worker} started, release {release}, queues {queues}; {urgent_slots}"
    worker: str
    release: str
    queues: str
    urgent_slots: str
    """How many of the slots are for jobs with a priority above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker has recorded everything it had and has ended."""

    line = "worker {worker} stopped"
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """The worker's event loop is blocked: nothing of the worker runs but the renewal of its leases.

    Emitted once after a second, and again when the loop is free (`over`). `job` and `job_type` are
    those of the handler that runs on the loop; None if it is no handler.
    """

    level = logging.WARNING
    job: int | None
    job_type: str | None
    blocked_s: float
    place: str
    over: bool

    def describe(self) -> str:
        who = "code outside handlers" if self.job is None else f"job {self.job} {self.job_type}"
        verb = "blocked" if self.over else "has been blocking"
        return f"{who} {verb} the event loop for {self.blocked_s:.1f} s at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(Event):
    """A part of the worker could not reach the database and tries again.

    `refused`: the database answered, and refused what this part wants to do.
    """

    level = logging.WARNING
    service: str
    reason: str
    retry_in_s: float
    refused: bool = False

    def describe(self) -> str:
        what = "failed" if self.refused else "database unavailable"
        return f"{self.service}: {what}, next try in {self.retry_in_s:.1f} s: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopied(Event):
    """This is a restored copy: the worker claims nothing and does no upkeep until a person releases
    it.

    Emitted once a minute.
    """

    level = logging.ERROR
    line = "this is a restored copy ({reason}): nothing runs until `rota queues resume --copy`"
    reason: str
