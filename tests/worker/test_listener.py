"""A notification is a hint, and a flood of them is none."""

from __future__ import annotations

import asyncio

import psycopg

from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.worker.listener import WAKE_UPS_A_SECOND_MAX, Listener
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.alone import Others
from tests.worker.table import Connection


@rule("M88")
async def test_a_flood_of_wake_ups_is_noticed_once_a_second_and_every_one_passed_on(
    database: str, connection: Connection
) -> None:
    wake_ups: list[str] = []
    floods: list[int] = []

    class Claimer:
        workers = 1

        def list_awaited(self) -> list[str]:
            return []

        def take_wake_up(self, queue: str) -> None:
            wake_ups.append(queue)

        def note_poll(self, poll: str) -> None: ...

        def note_listening(self, *, is_listening: bool, is_awaited: bool) -> None: ...

        def on_flood(self) -> None:
            floods.append(len(wake_ups))

    link = StoreLink(Database(database), "listen")
    channel = link.statements.worker_channel("w")
    listener = Listener(Bus(), SYSTEM_CLOCK, link, "kind w", ["default"], Claimer(), Others())
    listening = asyncio.create_task(listener.run())

    def send(numbers: range) -> None:
        for n in numbers:  # PostgreSQL sends equal texts of one transaction once
            connection.execute("select pg_notify(%s, %s)", [channel, f"queue {n}"])

    while not wake_ups:
        send(range(1))
        await asyncio.sleep(0.01)

    async def notify(count: int) -> None:
        heard = len(wake_ups) + count
        with connection.transaction():
            send(range(count))
        await asyncio.to_thread(eventually, lambda: len(wake_ups) >= heard)

    try:
        await notify(WAKE_UPS_A_SECOND_MAX // 4)
        assert floods == []
        # More than WAKE_UPS_A_SECOND_MAX fall into one second, even if another second begins
        # meanwhile.
        await notify(2 * WAKE_UPS_A_SECOND_MAX)
        assert 1 <= len(floods) <= 2
    finally:
        listening.cancel()
        await asyncio.wait([listening])


@rule("M81")
async def test_a_worker_is_not_awaited_where_its_request_had_to_leave_a_queue_out(
    database: str, connection: Connection
) -> None:
    awaited: list[bool] = []

    class Claimer:
        workers = 1

        def list_awaited(self) -> list[str]:
            return ["default"]

        def take_wake_up(self, queue: str) -> None: ...

        def note_poll(self, poll: str) -> None: ...

        def note_listening(self, *, is_listening: bool, is_awaited: bool) -> None:
            awaited.append(is_awaited)

        def on_flood(self) -> None: ...

    connection.execute("insert into rota.queue (name) values ('default')")
    link = StoreLink(Database(database), "listen")
    listener = Listener(Bus(), SYSTEM_CLOCK, link, "kind w", ["default"], Claimer(), Others())
    with psycopg.connect(database) as other:
        other.execute("select from rota.queue for update")
        listening = asyncio.create_task(listener.run())
        await asyncio.to_thread(eventually, lambda: awaited)
    assert awaited == [False]
    listening.cancel()
    await asyncio.wait([listening])
