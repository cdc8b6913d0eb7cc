"""Who a worker is to the others and to the database. None of it changes while the worker lives."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from rota.declare.release import VERSION
from rota.store import ops
from rota.worker.lane import Lane

if TYPE_CHECKING:
    from rota.declare.config import WorkerConfig
    from rota.worker.crew import Crew


class Identity:
    """A worker's name, what it may claim, and what its row says."""

    def __init__(self, crew: Crew, config: WorkerConfig) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._crew = crew
        self._config = config

    def lanes(self) -> list[Lane]:
        """Its slots: one lane for each queue that was named with its own, else one that all queues share."""
        if self._config.queues is not None:
            return [Lane((queue,), slots) for queue, slots in self._config.queues.items()]
        queues = {"default", *(job_type.options.queue for job_type in self._crew.types.values())}
        return [Lane(tuple(sorted(queues)), self._config.slots)]

    def claimant(self) -> ops.Claimant:
        """What it says of itself when it claims."""
        types = sorted(self._crew.types)
        leases = [
            timedelta(seconds=self._crew.types[name].options.lease_s or self._crew.lease_s)
            for name in types
        ]
        rules = [self._crew.types[name].rules for name in types]
        return ops.Claimant(
            self.name,
            self._crew.release,
            types,
            leases,
            [one.dead_if_lost or one.max_attempts == 1 for one in rules],
        )

    @property
    def shortest_lease_s(self) -> float:
        """The shortest lease of a job that it can hold."""
        return min(lease.total_seconds() for lease in self.claimant().leases)

    def queues_in_words(self) -> str:
        """Its queues and their slots, for a person."""
        slots = self._slots()
        words = ", ".join(
            queue if own is None else f"{queue}={own}" for queue, own in slots.items()
        )
        return (
            words
            if self._config.queues is not None
            else f"{words} sharing {self._config.slots} slots"
        )

    def sign(self) -> dict[str, Any]:
        """What it says of itself in `rota.worker` as long as it lives."""
        return {
            "name": self.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "release": self._crew.release,
            "job_types": sorted(self._crew.types),
            "queues": msgspec.json.encode(self._slots()).decode(),
            "slots": self._config.slots
            if self._config.queues is None
            else sum(self._config.queues.values()),
        }

    def _slots(self) -> dict[str, int | None]:
        if self._config.queues is not None:
            return dict(self._config.queues)
        return {queue: None for lane in self.lanes() for queue in lane.queues}
