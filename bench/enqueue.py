"""How fast one connection enqueues, through the application's API.

One job at a time takes turns with a bare INSERT of the same columns, and bulks with those of
graphile-worker; ratios are within a round.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import rota
from bench.app import declare
from bench.figures import Figure
from bench.graphile import Graphile
from bench.reference import INSERT, VALUES, Reference, open_reference
from bench.scale import Scale
from bench.server import DurableServer

PART = "enqueue"
BULK = 1_000
AT_ONCE = 20
"""Awaited one after the other, in one run of the loop."""
IN_ONE_TRANSACTION = 500
WARM_UP = 8
BARE, BARE_BESIDE_ROW, PLAIN_BULK = "a bare INSERT", "a row and a bare INSERT", "in bulk of 1,000"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to enqueue."""

    turn: Callable[[], object]
    jobs: int = 1
    """Of one turn."""
    of: str = ""
    """The way whose speed is its measure."""
    at_least: float | None = None


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Enqueue one by one, beside a row of the caller's, and in bulk; without and with a key."""
    with ExitStack() as stack:
        url = stack.enter_context(server.database())
        reference = stack.enter_context(open_reference(url))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=0))
        connection.execute("create table application (n int)")
        types = declare()
        app = rota.App(url, jobs=[types.jobs])
        stack.callback(app.close)
        loop = stack.enter_context(asyncio.Runner())
        stack.callback(lambda: loop.run(app.aclose()))
        ways = _list_ways(app, types.noop, reference, connection, loop)
        yield from _beside(ways, scale)
        yield from _beside_graphile(server, ways, scale)


def _beside(ways: dict[str, Way], scale: Scale) -> Iterator[Figure]:
    for way in ways.values():
        for _ in range(WARM_UP):
            way.turn()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(scale.rounds):
        order = [*ways] if round_ % 2 == 0 else [*ways][::-1]
        for name in order:
            rates[name].append(_rate(ways[name], scale.enqueue_s / scale.rounds))
    for name, way in ways.items():
        yield Figure(part=PART, name=name, value=median(rates[name]), unit="jobs/s")
        if way.of:
            ratios = [own / its for own, its in zip(rates[name], rates[way.of], strict=True)]
            yield Figure(
                part=PART,
                name=f"{name}, of {way.of}",
                value=median(ratios),
                unit="×",
                at_least=way.at_least,
                detail={"by_round": ratios},
            )


def _beside_graphile(server: DurableServer, ways: dict[str, Way], scale: Scale) -> Iterator[Figure]:
    graphile = Graphile.install()
    if graphile is None:
        return
    for_s = scale.enqueue_s / 2
    for keyed, least in ((False, 1.4), (True, 1.1)):
        way = ways[f"{PLAIN_BULK}, with a key" if keyed else PLAIN_BULK]
        ratios, peers = [], []
        with server.database(migrated=False) as url:
            graphile.migrate(url)
            for _ in range(scale.rounds):
                own = _rate(way, for_s)
                peers.append(graphile.enqueue(url, bulk=BULK, for_s=for_s, keyed=keyed))
                ratios.append(own / peers[-1])
        yield Figure(
            part=PART,
            name=f"bulk, × graphile-worker, {'with a key' if keyed else 'no key'}",
            value=median(ratios),
            unit="×",
            at_least=least,
            note=f"addJobs: {median(peers):,.0f} jobs/s, {Graphile.name} {graphile.version}",
            detail={"by_round": ratios, "peer_per_second": peers},
        )


def _list_ways(
    app: rota.App,
    noop: Any,
    reference: Reference,
    connection: psycopg.Connection,
    loop: asyncio.Runner,
) -> dict[str, Way]:
    numbers = itertools.count()
    cursor = psycopg.Cursor(connection)

    def name_key() -> str:
        return f"bench:{next(numbers)}"

    def beside_row(insert: Callable[[], object]) -> Callable[[], None]:
        def turn() -> None:
            with connection.transaction():
                cursor.execute("insert into application (n) values (1)")
                insert()

        return turn

    def in_a_transaction() -> None:
        with connection.transaction():
            for _ in range(IN_ONE_TRANSACTION):
                noop.using(connection=connection).enqueue(n=1)

    async def await_each() -> None:
        for _ in range(AT_ONCE):
            await noop.aenqueue(n=1)

    def in_bulk() -> None:
        app.enqueue_many(noop.new(n=n) for n in range(BULK))

    def in_bulk_with_keys() -> None:
        app.enqueue_many(noop.new(n=n).using(key=name_key()) for n in range(BULK))

    single = "one by one, each its own commit"
    return {
        BARE: Way(reference.insert),
        single: Way(lambda: noop.enqueue(n=1), 1, BARE, 0.50),
        f"{single}, with a key": Way(
            lambda: noop.using(key=name_key()).enqueue(n=1), 1, BARE, 0.38
        ),
        f"{single}, awaited": Way(lambda: loop.run(await_each()), AT_ONCE, BARE, 0.45),
        BARE_BESIDE_ROW: Way(beside_row(lambda: cursor.execute(INSERT, VALUES, binary=True))),
        "a row and a job in one transaction": Way(
            beside_row(lambda: noop.using(connection=connection).enqueue(n=1)),
            1,
            BARE_BESIDE_ROW,
            0.70,
        ),
        f"{IN_ONE_TRANSACTION} one by one in a caller's transaction": Way(
            in_a_transaction, IN_ONE_TRANSACTION
        ),
        PLAIN_BULK: Way(in_bulk, BULK),
        f"{PLAIN_BULK}, with a key": Way(in_bulk_with_keys, BULK, PLAIN_BULK, 0.65),
    }


def _rate(way: Way, for_s: float) -> float:
    began, turns = time.perf_counter(), 0
    while (took_s := time.perf_counter() - began) < for_s:
        way.turn()
        turns += 1
    return turns * way.jobs / took_s
