"""The same drain while another connection holds an old snapshot, which keeps vacuum and every index
from forgetting the jobs that are over.

A transaction of REPEATABLE READ has read something before the worker starts, as a report or a dump
does, and stays open. The second bar is the drain without it. Redis has no such thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.peers.played import Played
from bench.peers.result import Measured
from bench.peers.scenarios import drain
from bench.peers.stage import Stage
from bench.peers.system import Setup, System

NAME = "old snapshot"
ROUNDS_MAX = 1
TOGETHER = 1


def entries(system: System) -> list[Setup]:
    return [system.lead] if system.kept == "postgresql" else []


def play(stage: Stage, system: System, setup: Setup) -> Iterator[Measured]:
    jobs = drain.count_worth(stage, system, setup)
    yield from drain.describe(drain.drain_in_turn(stage, system, setup, jobs, old_snapshot), jobs)


@contextmanager
def old_snapshot(played: Played) -> Iterator[None]:
    """Hold one."""
    with psycopg.connect(played.store.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from application")
        yield
        connection.rollback()
