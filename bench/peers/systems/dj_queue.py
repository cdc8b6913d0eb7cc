"""dj_queue: a backend of Django's tasks."""

from __future__ import annotations

import os

from bench.peers.django_site import PACKAGES
from bench.peers.django_site.harness import DjangoTasks
from bench.peers.harness import main
from bench.peers.system import Rows, Setup, System

FAILED = "the tasks of a worker that is gone have failed, for a person to retry"
SYSTEM = System(
    name="dj_queue",
    module="dj_queue",
    package="dj-queue",
    packages=PACKAGES,
    setups=(
        Setup(
            name="one at a time",
            about="10 threads, prefetch_multiplier 2, LISTEN/NOTIFY, mode async",
            history="kept",
            is_lead=True,
        ),
        Setup(
            name="successes not kept",
            about="the same, preserve_finished_jobs False",
            history="failures only",
        ),
        Setup(name="defaults", about="dj_queue", history="kept", is_default=True),
    ),
    left="select count(*) from dj_queue_jobs where finished_at is null",
    copied=(
        Rows("dj_queue_jobs", {"id": "md5('job ' || copy)::uuid"}),
        Rows("dj_queue_ready_executions", {"id": "", "job_id": "md5('job ' || copy)::uuid"}),
    ),
    durable="each commit",
    recovery="heartbeat each 2 s, dead after 10 s; then the task has failed, for a person to retry",
    default_recovery="after 5 minutes the task has failed, and a person retries it",
    why_lost=FAILED,
    why_held=FAILED,
    environment="django",
    needs_rota=True,
    newest_python=True,
    settings={"PEERS_BACKEND": "dj_queue"},
)


class DjQueue(DjangoTasks):
    """One worker process with threads."""

    system = SYSTEM

    def work(self, slots: int | None) -> None:
        os.environ["PEERS_SLOTS"] = str(slots or "")
        self.setup_django()
        self.command("dj_queue")


if __name__ == "__main__":
    main(DjQueue)
