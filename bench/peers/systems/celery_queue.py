"""Celery, with a Redis of its own."""

from __future__ import annotations

from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library, main
from bench.peers.system import Setup, System

LEAD, DEFAULTS = "late acknowledgement", "defaults"
SYSTEM = System(
    name="Celery",
    module="celery_queue",
    package="celery",
    packages=("celery[redis]>=5.6,<6",),
    setups=(
        Setup(
            name=LEAD,
            about="task_acks_late, task_reject_on_worker_lost, worker_prefetch_multiplier=64, "
            "prefork with as many processes as cores, --without-gossip --without-mingle",
            history="none",
            is_lead=True,
        ),
        Setup(name=DEFAULTS, about="celery worker", history="none", is_default=True),
    ),
    kept="redis",
    left="return redis.call('llen', 'celery') + redis.call('hlen', 'unacked')",
    durable="no: Redis writes a snapshot each minute after 10,000 changes, each hour after one",
    recovery="visibility_timeout of 10 s, unacked_restore_interval 1, worker_prefetch_multiplier 1",
    default_recovery="never: a task is acknowledged before it runs; with task_acks_late after an "
    "hour, visibility_timeout",
)
PREFETCH = 64


class CeleryQueue(Harness):
    """One worker with its processes."""

    system = SYSTEM

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.app = library("celery").Celery("bench", broker=self.url)
        self.app.conf.broker_connection_retry_on_startup = True
        self.app.conf.task_ignore_result = True
        if setup.name == LEAD:
            self.app.conf.task_acks_late = True
            self.app.conf.task_reject_on_worker_lost = True
            self.app.conf.worker_prefetch_multiplier = 1 if self.lease_s else PREFETCH
        if self.lease_s is not None:
            self.app.conf.broker_transport_options = {
                "visibility_timeout": self.lease_s,
                "unacked_restore_interval": 1,
                "unacked_restore_throttle": 1,
            }
        self.tasks = {kind: self.app.task(name=kind)(_handler(self, kind)) for kind in KINDS}

    async def prepare(self) -> None:
        """There is nothing to make."""

    async def one(self, kind: Kind, n: int) -> None:
        self.tasks[kind].delay(n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        with self.app.producer_or_acquire() as producer:
            for n in numbers:
                self.tasks[kind].apply_async((n,), producer=producer)

    def work(self, slots: int | None) -> None:
        options = ["worker", "--loglevel=ERROR"]
        options += [f"--concurrency={slots}"] if slots else []
        options += ["--without-gossip", "--without-mingle"] if self.setup.name == LEAD else []
        self.app.worker_main(options)


def _handler(harness: Harness, kind: Kind) -> Any:
    def handle(n: int) -> None:
        harness.handle_here(kind, n)

    return handle


if __name__ == "__main__":
    main(CeleryQueue)
