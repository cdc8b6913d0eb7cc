"""A handler in a module that does not know the App: tests.worker.heavy does."""

from __future__ import annotations

import rota

jobs = rota.Jobs()


@jobs.job("target")
def target() -> None:
    """Do nothing."""


@jobs.job("enqueues", process=True)
def enqueues() -> int:
    """Enqueue, which needs the App."""
    return target.enqueue().id
