"""The bell is a hint, and a storm of rings is none."""

from __future__ import annotations

import asyncio

from rota.observe.events import Bus
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.listener import RINGS_A_SECOND_MAX, Listener
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.table import Connection


@rule("M88")
async def test_a_storm_of_rings_is_noticed_once_a_second_and_every_ring_passed_on(
    database: str, connection: Connection
) -> None:
    rings: list[str] = []
    storms: list[int] = []
    served = Database(database)
    listener = Listener(
        Bus(),
        StoreLink(served, "listen"),
        served.statements,
        "worker",
        on_ring=rings.append,
        on_storm=lambda: storms.append(len(rings)),
        on_call=lambda: None,
    )
    listening = asyncio.create_task(listener.run())
    await asyncio.to_thread(
        eventually, lambda: rings or connection.execute("notify rota, 'first'") is None
    )

    async def ring(count: int) -> None:
        heard = len(rings) + count  # of the same text in one transaction PostgreSQL would send one
        connection.execute(
            f"select pg_notify('rota', 'queue ' || n) from generate_series(1, {count}) n".encode()
        )
        await asyncio.to_thread(eventually, lambda: len(rings) >= heard)

    try:
        await ring(RINGS_A_SECOND_MAX // 4)
        assert storms == []
        await ring(
            2 * RINGS_A_SECOND_MAX
        )  # of these so many fall into one second, even if another begins meanwhile
        assert 1 <= len(storms) <= 2
    finally:
        listening.cancel()
        await asyncio.wait([listening])
