"""The facts of one worker. They do not change while the worker lives."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from hashlib import md5
from typing import Any

import msgspec

from rota.declare.around import Around
from rota.declare.config import WorkerConfig
from rota.declare.declaration import Declaration
from rota.declare.jobs import Lifespan
from rota.declare.release import VERSION
from rota.declare.secret import find_keys_problem, read_keys
from rota.model.units import plural
from rota.store import ops
from rota.worker.slots import SlotGroup


def _make_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    types: Mapping[str, Declaration]
    """The job types by name, former names included."""
    release: str
    lease_s: float
    """The lease of types without one of their own."""
    declaration: str
    """The types as `job_type_declare` takes them, in JSON."""
    config: WorkerConfig
    lifespan: Lifespan | None = None
    lifespans: tuple[Lifespan, ...] = ()
    """The lifespans of its Jobs."""
    arounds: tuple[Around, ...] = ()
    """What is around each attempt, the outermost first."""
    module: str | None = None
    """The module that makes the App; None if it is not known."""
    schedules: str = "[]"
    """The schedules declared in code, as `schedules_declare` takes them, in JSON."""
    limits: str = "[]"
    """The rate limits declared in code, as `limits_declare` takes them, in JSON."""
    name: str = msgspec.field(default_factory=_make_name)
    """As in `rota.worker` and in `locked_by`."""

    def list_queues(self) -> list[str]:
        return sorted(self._slots_of_queues())

    @property
    def peer(self) -> str:
        """Its kind, common to workers that can take each other's jobs; and its name."""
        facts = [self.release, self.claimed_types, self.list_queues()]
        kind = md5(msgspec.json.encode(facts), usedforsecurity=False).hexdigest()[:8]
        return f"{kind} {self.name}"

    def make_slot_groups(self, now: float) -> list[SlotGroup]:
        """Return one group for each queue with its own slots, and one for the other queues."""
        return [
            SlotGroup(queues, slots, now, self.config.count_urgent_slots(slots))
            for queues, slots in self._group_queues().items()
        ]

    @cached_property
    def keyless(self) -> frozenset[str]:
        """The types, by name, that this worker does not claim: it can open no secret of theirs."""
        sealed = [name for name, job_type in self.types.items() if job_type.codec.secret]
        return frozenset(sealed if sealed and find_keys_problem() is not None else ())

    @property
    def claimed_types(self) -> list[str]:
        return sorted(self.types.keys() - self.keyless)

    def make_claimant(self) -> ops.Claimant:
        names = self.claimed_types
        rules = [self.types[name].rules for name in names]
        return ops.Claimant(
            worker=self.name,
            release=self.release,
            types=names,
            leases=[timedelta(seconds=self.find_lease_s(name)) for name in names],
            records=[rule.must_record_start for rule in rules],
            ahead=ops.AHEAD if self.config.asks_limits else None,
        )

    def find_lease_s(self, job_type: str) -> float:
        return self.types[job_type].options.lease_s or self.lease_s

    def list_leases_s(self) -> dict[str, float]:
        return {name: self.find_lease_s(name) for name in self.types}

    @property
    def shortest_lease_s(self) -> float:
        return min(self.find_lease_s(name) for name in self.types)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "release": self.release,
            "job_types": sorted(self.types),
            "secret_keys": [] if find_keys_problem() is not None else sorted(read_keys()),
            "queues": msgspec.json.encode(self._slots_of_queues()).decode(),
            "slots": sum(self._group_queues().values()),
        }

    def describe_queues(self) -> str:
        slots = self._slots_of_queues()
        words = ", ".join(
            queue if own is None else f"{queue}={own}" for queue, own in slots.items()
        )
        if None not in slots.values():
            return words
        return f"{words} sharing {plural(self.config.slots, 'slot')}"

    def describe_urgent_slots(self) -> str:
        """Return how many of its slots are for urgent jobs, for a person."""
        by_queues = self._group_queues()
        is_one = len(by_queues) == 1 and None in self._slots_of_queues().values()
        groups = {"" if is_one else "+".join(queues): slots for queues, slots in by_queues.items()}
        counts = {name: self.config.count_urgent_slots(slots) for name, slots in groups.items()}
        kept = ", ".join(
            f"{name}={count}" if name else f"{count:,}" for name, count in counts.items() if count
        )
        words = f"{kept or 'none'} for priority above 0"
        if single := [name for name, slots in groups.items() if slots == 1]:
            of_queues = "" if is_one else f" of {', '.join(single)}"
            words += f": with one slot, a job of high priority{of_queues} waits for the running one"
        return words

    def _group_queues(self) -> dict[tuple[str, ...], int]:
        by_queue = self._slots_of_queues()
        groups: dict[tuple[str, ...], int]
        groups = {(queue,): own for queue, own in by_queue.items() if own is not None}
        if shared := tuple(queue for queue, own in by_queue.items() if own is None):
            groups[shared] = self.config.slots
        return groups

    def _slots_of_queues(self) -> dict[str, int | None]:
        if self.config.queues is not None:
            # Queues that share slots come last, where a person reads of how many.
            return dict(sorted(self.config.queues.items(), key=lambda item: item[1] is None))
        used = {job_type.options.queue for job_type in self.types.values()}
        return dict.fromkeys(sorted({"default", *used}))
