"""pg-boss; pg_boss.cjs runs it."""

from __future__ import annotations

from bench.peers.system import Rows, Setup, System

SYSTEM = System(
    name="pg-boss",
    module="pg_boss",
    package="pg-boss",
    packages=("pg-boss", "pg"),
    setups=(
        Setup(
            name="batches of 1,000",
            about="batchSize: 1,000, pollingIntervalSeconds: 0.5; the handler gets a batch, and a "
            "batch is finished at once",
            history="kept",
            is_lead=True,
        ),
        Setup(name="defaults", about="boss.work(queue, handler)", history="kept", is_default=True),
    ),
    left="select count(*) from pgboss.job where name in ('noop', 'stamp', 'work') and "
    "state in ('created', 'retry', 'active')",
    runtime="node",
    copied=(Rows("pgboss.job", {"id": ""}),),
    durable="each commit",
    recovery="expireInSeconds: 10 of each job, maintenance each second",
    default_recovery="15 minutes: expireInSeconds",
)
