"""What befalls a worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rota.observe.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker is about to claim."""

    line = "worker {worker} started, release {release}, queues {queues}"
    worker: str
    release: str
    queues: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker has recorded everything it had and is gone."""

    line = "worker {worker} stopped"
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """The worker's event loop does not turn: nothing of the worker's goes on but the renewal of its leases. Said once after a second, and again when it
    is `over`. `job` and `job_type` are those of the handler that runs on it; None when it is no handler."""

    level = logging.WARNING
    job: int | None
    job_type: str | None
    blocked_s: float
    place: str
    over: bool

    def describe(self) -> str:
        who = (
            "something that is no handler"
            if self.job is None
            else f"job {self.job} {self.job_type}"
        )
        return f"{who}: {'blocked' if self.over else 'has been blocking'} the event loop for {self.blocked_s:.1f} s at {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(Event):
    """A part of the worker could not reach the database and tries again."""

    level = logging.WARNING
    line = "{service}: database unavailable, next try in {retry_in_s:.1f} s: {reason}"
    service: str
    reason: str
    retry_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopied(Event):
    """This is a restored copy: the worker claims nothing and does no upkeep until somebody says that it may. Said once a minute."""

    level = logging.ERROR
    line = "this is a restored copy ({reason}): nothing is claimed and no upkeep done until `rota resume --copy`"
    reason: str
