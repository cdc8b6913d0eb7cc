"""A notification is a hint, and a flood of them is none."""

from __future__ import annotations

import asyncio

import psycopg

from rota.observe.events import Bus
from rota.runtime.clock import SYSTEM_CLOCK
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.store.statements import Statements
from rota.worker.listener import WAKE_UPS_A_SECOND_MAX, Listener
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.table import Connection


class Claimer:
    """Waits for these queues, and keeps what it is told."""

    workers = 1

    def __init__(self, *awaited: str) -> None:
        self._awaited = list(awaited)
        self.wake_ups: list[str] = []
        self.floods: list[int] = []
        self.is_awaited: list[bool] = []

    def list_awaited(self) -> list[str]:
        return self._awaited

    def take_wake_up(self, queue: str) -> None:
        self.wake_ups.append(queue)

    def note_poll(self, poll: str) -> None: ...

    def note_listening(self, *, is_listening: bool, is_awaited: bool) -> None:
        self.is_awaited.append(is_awaited)

    def on_flood(self) -> None:
        self.floods.append(len(self.wake_ups))


def make_listener(database: str, claimer: Claimer) -> Listener:
    link = StoreLink(Database(database), "listen")
    return Listener(Bus(), SYSTEM_CLOCK, link, "kind w", ["default"], claimer, lambda: None)


@rule("M88")
async def test_a_flood_of_wake_ups_is_noticed_once_a_second_and_every_one_passed_on(
    database: str, connection: Connection
) -> None:
    claimer = Claimer()
    wake_ups, floods = claimer.wake_ups, claimer.floods
    channel = Statements("rota").worker_channel("w")
    listening = asyncio.create_task(make_listener(database, claimer).run())

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
        await aeventually(lambda: len(wake_ups) >= heard)

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
    claimer = Claimer("default")
    connection.execute("insert into rota.queue (name) values ('default')")
    with psycopg.connect(database) as other:
        other.execute("select from rota.queue for update")
        listening = asyncio.create_task(make_listener(database, claimer).run())
        await aeventually(lambda: claimer.is_awaited)
    assert claimer.is_awaited == [False]
    listening.cancel()
    await asyncio.wait([listening])
