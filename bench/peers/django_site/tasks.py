"""What the site does later."""

from __future__ import annotations

import os

from django.tasks import task

from bench.peers.ledger import PATH, Ledger

LEDGER = Ledger(os.environ.get(PATH, os.devnull))
SECONDS = float(os.environ.get("PEERS_SECONDS", "0"))


@task
def noop(n: int) -> None:
    """Do nothing but count."""
    LEDGER.count()


@task
def stamp(n: int) -> None:
    """Say that it begins."""
    LEDGER.stamp(n)


@task
def work(n: int) -> None:
    """Work for a while."""
    LEDGER.work_here(n, SECONDS)
