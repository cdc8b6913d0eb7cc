"""The webhooks of the run, and their promises: the judge goes by what the endpoints received."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

import rota
from chaos.check import Check
from rota.kinds import webhook

TYPES = ("webhook", "webhook.ordered", "webhook.forget")
ENDPOINTS = {"plain": False, "ordered": True, "ordered2": True, "ordered3": True}
"""Each with whether its deliveries are in order; also its account."""
SLOW_S = 0.3
HANG_S = 12.0
TRIES = 20

hooks = webhook.Webhooks(
    # No breaker: it would be open for longer than the run has to come to rest.
    options={"max_attempts": TRIES, "retry": rota.Fixed("1s", jitter=0), "breaker": None}
)

HOOKS = [
    Check(
        "a delivery that succeeded was received",
        """
        select j.id as job, j.payload->>'endpoint' as endpoint, j.payload->>'event_id' as event_id
        from chaos.job j
        where j.job_type in ('webhook', 'webhook.ordered') and j.status = 'succeeded'
          and not exists (
          select from chaos.hook h
          where (h.endpoint, h.event_id) = (j.payload->>'endpoint', j.payload->>'event_id'))
        """,
    ),
    Check(
        "what an endpoint received was emitted for it",
        """
        select null::bigint as job, h.endpoint, h.event_id from chaos.hook h
        where not exists (select from rota.webhook_delivery d
          join rota.webhook_endpoint e on e.id = d.endpoint
          where (e.name, d.event_id) = (h.endpoint, h.event_id))
        """,
    ),
    Check(
        "an endpoint has one delivery of an event",
        """
        select min(j.id) as job, j.payload->>'endpoint' as endpoint, count(*) from chaos.job j
        where j.job_type in ('webhook', 'webhook.ordered') and j.origin_id is null
        group by j.payload->>'endpoint', j.payload->>'event_id' having count(*) > 1
        """,
    ),
]


class Endpoints:
    """A server that takes events. It is slow, refuses some, hangs, and at times closes the
    connection in place of an answer, before or after it took the event."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"endpoints {seed}")
        self.received: list[tuple[str, str, float]] = []
        """Endpoint and `webhook-id` of each event that was taken, and when, in seconds since
        1970."""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the requests of a connection."""
        try:
            while await self._take(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the worker was killed, or all is over
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        given = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        await reader.readexactly(int(given["content-length"]))
        await asyncio.sleep(self._chance.uniform(0, SLOW_S))
        drawn = self._chance.randrange(60)
        if drawn == 0:
            return False
        if drawn == 1:
            await asyncio.sleep(HANG_S)
        code = {2: 503, 3: 500, 4: 429, 5: 404}.get(drawn, 200)
        if code == 200:
            endpoint = head[0].split()[1].strip("/")
            self.received.append((endpoint, given["webhook-id"], time.time()))
        await asyncio.sleep(self._chance.uniform(0, SLOW_S))
        if drawn == 6:
            return False
        writer.write(f"HTTP/1.1 {code} x\r\ncontent-length: 0\r\n\r\n".encode())
        return True

    def save(self, connection: psycopg.Connection) -> None:
        """Write down what they received."""
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into chaos.hook (endpoint, event_id, at_s) values (%s, %s, %s)",
                self.received,
            )
        self.received.clear()


@contextmanager
def receive_events(seed: int) -> Iterator[Endpoints]:
    """Take events for a block, in a thread."""

    async def end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    endpoints = Endpoints(seed)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="endpoints")
    thread.start()
    opening = asyncio.start_server(endpoints.serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(opening, loop).result()
    endpoints.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoints
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def put_endpoints(endpoints: Endpoints) -> None:
    """Make the endpoints, each of an account of its own."""
    for name, in_order in ENDPOINTS.items():
        url = f"http://127.0.0.1:{endpoints.port}/{name}"
        hooks.put(name, url, account=name, in_order=in_order, allow_private=True)
