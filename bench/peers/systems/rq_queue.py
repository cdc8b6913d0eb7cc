"""RQ, with a Redis of its own."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

from bench.peers.harness import SECONDS, Harness, Kind, library, main
from bench.peers.ledger import PATH, Ledger
from bench.peers.system import Setup, System

LEAD, DEFAULTS = "without fork", "defaults"
NAME = "bench.peers.systems.rq_queue"
QUEUE = "default"
SYSTEM = System(
    name="RQ",
    module="rq_queue",
    package="rq",
    packages=("rq>=3,<4",),
    setups=(
        Setup(
            name=LEAD,
            about="a pool of as many SimpleWorkers as cores",
            history="kept for 500 s",
            is_lead=True,
        ),
        Setup(name=DEFAULTS, about="rq worker", history="kept for 500 s", is_default=True),
    ),
    kept="redis",
    left="return redis.call('llen', 'rq:queue:default') + redis.call('zcard', 'rq:wip:default') "
    "+ redis.call('llen', 'rq:queue:default:intermediate')",
    durable="no: Redis writes a snapshot each minute after 10,000 changes, each hour after one",
    recovery="maintenance_interval 1, worker_ttl 16 (an idle worker looks for abandoned jobs each "
    "second), job_timeout 10, Retry(max=3); a SimpleWorker's job is abandoned 60 s after its "
    "timeout",
    default_recovery="90 s, job_monitoring_interval and 60 s, and up to 10 minutes more, "
    "maintenance_interval: then the job has failed, or runs again if it has retries",
    why_lost="a job is abandoned 60 s after its timeout; one that was taken and not begun waits a "
    "minute more; a worker killed during maintenance holds its lock for 15 minutes "
    "(Queue.acquire_maintenance_lock, IntermediateQueue.cleanup)",
    why_held="a job is abandoned 60 s after its timeout (SimpleWorker.get_heartbeat_ttl)",
    recover_s=90,
)
WORKER_TTL_S = 16
"""An idle worker waits for a job for this less 15 seconds, and looks for abandoned ones after it:
with the default of 420 seconds only then."""
LEDGER = Ledger(os.environ.get(PATH, os.devnull))


def noop(n: int) -> None:
    """Do nothing but count."""
    LEDGER.count()


def stamp(n: int) -> None:
    """Say that it begins."""
    LEDGER.stamp(n)


def work(n: int) -> None:
    """Work for a while."""
    LEDGER.work_here(n, float(os.environ.get(SECONDS, "0")))


class Rq(Harness):
    """A pool of workers, or one that forks for each job."""

    system = SYSTEM

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        logging.getLogger("rq").setLevel(logging.ERROR)
        self.redis = library("redis").Redis.from_url(self.url)
        timeout = None if self.lease_s is None else int(self.lease_s)
        self.queue = library("rq").Queue(QUEUE, connection=self.redis, default_timeout=timeout)
        self.retry = library("rq").Retry(max=3) if self.lease_s else None

    async def prepare(self) -> None:
        """There is nothing to make."""

    async def one(self, kind: Kind, n: int) -> None:
        self.queue.enqueue(f"{NAME}.{kind}", n, retry=self.retry)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        make = library("rq").Queue.prepare_data
        self.queue.enqueue_many(
            [make(f"{NAME}.{kind}", args=(n,), retry=self.retry) for n in numbers]
        )

    def work(self, slots: int | None) -> None:
        rq, options = library("rq"), dict[str, Any]()
        if self.lease_s is not None:
            options = {"maintenance_interval": 1, "worker_ttl": WORKER_TTL_S}
        if slots is None and self.setup.name == DEFAULTS:
            rq.Worker([self.queue], connection=self.redis).work(logging_level="ERROR")
            return
        pool = library("rq.worker_pool").WorkerPool(
            [QUEUE],
            connection=self.redis,
            num_workers=slots or os.cpu_count() or 1,
            worker_class=partial(rq.SimpleWorker, **options),
        )
        pool.start(logging_level="ERROR")


if __name__ == "__main__":
    main(Rq)
