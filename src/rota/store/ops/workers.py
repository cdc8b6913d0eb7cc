"""The rows of workers: heartbeats, counters, and the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.store.driver import Operation, Query

COUNTS = ("succeeded", "failed", "dead", "rejected")
"""A worker's counters, sent with each heartbeat. `rejected`: results of jobs that it had lost."""

HEADS = 100
"""How many jobs of each queue and priority are looked at for an unknown type. Jobs that no worker
takes soon stand in front."""
UNKNOWN_MAX = 20
"""Most unknown types that are found at once: a producer may have made up any number of names."""


def write_heartbeat(worker: dict[str, Any]) -> Operation[int]:
    """Write a worker's heartbeat and counters; return how many live workers share a queue."""
    unsaid: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    unsaid |= {"slots": None, "refused": None, "secret_keys": []}
    rows = yield Query("worker_heartbeat", {**unsaid, **worker})
    return rows[0][0]  # type: ignore[no-any-return]


def find_unknown_types(queues: list[str]) -> Operation[dict[str, int]]:
    """Return the types of due jobs in these queues that no live worker knows, each with how many of
    its jobs stand in front."""
    asked = {"queues": queues, "heads": HEADS, "limit": UNKNOWN_MAX}
    return dict((yield Query("types_unknown", asked)))


def stop(worker: str, counts: Mapping[str, int] | None = None) -> Operation[None]:
    """Record that a worker stopped, with its counters; without counters they stay as they were."""
    yield Query(
        "worker_stop",
        {
            "name": worker,
            **{name: None if counts is None else counts.get(name, 0) for name in COUNTS},
        },
    )
