"""How fast one connection enqueues, through the application's API."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import rota
from bench.app import declare
from bench.figures import Figure
from bench.graphile import Graphile
from bench.scale import Scale
from bench.server import DurableServer

PART = "enqueue"
BULK = 1_000
IN_ONE_TRANSACTION = 500


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Enqueue one by one, within a caller's transaction, and in bulk; without and with a key.

    The bulks take turns with those of graphile-worker; ratios are within a round.
    """
    graphile = Graphile.install()
    for keyed in (False, True):
        named = "with a key" if keyed else "no key"
        with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
            types = declare()
            app = rota.App(url, jobs=[types.jobs])
            try:
                for name, turn, rows in _ways(app, types.noop, connection, keyed=keyed):
                    rate = rows / _seconds_each(turn, scale.enqueue_s)
                    yield Figure(part=PART, name=f"{name}, {named}", value=rate, unit="jobs/s")
                if graphile is not None:
                    yield _ratio(server, graphile, turn, scale, keyed=keyed)
            finally:
                app.close()


def _ratio(
    server: DurableServer,
    graphile: Graphile,
    bulk: Callable[[], object],
    scale: Scale,
    *,
    keyed: bool,
) -> Figure:
    for_s = scale.enqueue_s / 2
    ratios, peers = [], []
    with server.database(migrated=False) as url:
        graphile.migrate(url)
        for _ in range(scale.rounds):
            own = BULK / _seconds_each(bulk, for_s)
            peers.append(graphile.enqueue(url, bulk=BULK, for_s=for_s, keyed=keyed))
            ratios.append(own / peers[-1])
    return Figure(
        part=PART,
        name=f"bulk, × graphile-worker, {'with a key' if keyed else 'no key'}",
        value=median(ratios),
        unit="×",
        at_least=1.1 if keyed else 1.4,
        note=f"addJobs: {median(peers):,.0f} jobs/s, {Graphile.name} {graphile.version}",
        detail={"by_round": ratios, "peer_per_second": peers},
    )


def _ways(
    app: rota.App, noop: Any, connection: psycopg.Connection, *, keyed: bool
) -> Iterator[tuple[str, Callable[[], object], int]]:
    numbers = itertools.count()
    options: Callable[[], dict[str, str]] = (
        (lambda: {"key": f"bench:{next(numbers)}"}) if keyed else dict
    )

    def in_a_transaction() -> None:
        with connection.transaction():
            for _ in range(IN_ONE_TRANSACTION):
                noop.using(connection=connection, **options()).enqueue(n=1)

    yield "one by one, each its own commit", lambda: noop.using(**options()).enqueue(n=1), 1
    yield (
        f"one by one, {IN_ONE_TRANSACTION} in a caller's transaction",
        in_a_transaction,
        IN_ONE_TRANSACTION,
    )
    yield (
        f"in bulk of {BULK:,}",
        lambda: app.enqueue_many(noop.new(n=n).using(**options()) for n in range(BULK)),
        BULK,
    )


def _seconds_each(turn: Callable[[], object], for_s: float) -> float:
    turn()  # the connection, the statement's plan
    began = time.perf_counter()
    turns, took_s = 0, 0.0
    while took_s < for_s:
        turn()
        turns, took_s = turns + 1, time.perf_counter() - began
    return took_s / turns
