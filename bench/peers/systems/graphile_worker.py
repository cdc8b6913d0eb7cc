"""graphile-worker; graphile_worker.cjs runs it."""

from __future__ import annotations

from bench.peers.system import Rows, Setup, System

LOCKED = (
    "a lock ends after 4 hours (its page on performance), or when a person calls "
    "force_unlock_workers"
)
SYSTEM = System(
    name="graphile-worker",
    module="graphile_worker",
    package="graphile-worker",
    packages=("graphile-worker@0.18 || 0.17", "pg"),
    setups=(
        Setup(
            name="one at a time",
            about="concurrentJobs: 100, localQueue: 500, completeJobBatchDelay: 0",
            history="none",
            is_lead=True,
        ),
        Setup(name="defaults", about="run()", history="none", is_default=True),
    ),
    left="select count(*) from graphile_worker._private_jobs",
    runtime="node",
    copied=(Rows("graphile_worker._private_jobs", {"id": ""}),),
    durable="each commit",
    recovery="none that can be set: a lock ends after 4 hours",
    default_recovery="4 hours",
    why_lost=LOCKED,
    why_held=LOCKED,
)
