"""One file for each system: what is said of it, and what runs it. A node system has a second one
beside it, in JavaScript.

A module of a peer is imported by the benchmark too, which does not have the peer's library: that is
imported where it is used.
"""

from __future__ import annotations

from importlib import import_module

from bench.peers.system import System

NAMES = (
    "rota_queue",
    "graphile_worker",
    "procrastinate_queue",
    "pgqueuer_queue",
    "rota_django",
    "django_tasks_db",
    "dj_queue",
    "pg_boss",
    "oban_queue",
    "chancy_queue",
    "dbos_queue",
    "awa_queue",
    "celery_queue",
    "rq_queue",
)
"""In the order of their turns."""


def load() -> list[System]:
    """Return all systems."""
    systems: list[System] = [import_module(f"{__name__}.{name}").SYSTEM for name in NAMES]
    return systems
