"""What an endpoint that hangs costs the others: deliveries to a live one, alone and beside many to
a dead one, by one worker of ten slots."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median, quantiles

import psycopg

import rota
from bench.figures import Figure
from bench.process import ROOT
from bench.scale import Scale
from bench.server import DurableServer
from rota.kinds import webhook

PART = "webhooks"
SLOTS = 10
LIVE = 100
LIVE_EVERY_S = 0.05
DEAD = 10_000
OPEN_S = 90.0
"""The breaker opens after five requests that take ten seconds each, four at once."""
ARRIVE_S = 60.0

hooks = webhook.Webhooks()
app = rota.App(jobs=[hooks.jobs])


class _Receiver:
    """Answers at once on /live, and never on another path."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> _Receiver:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *raised: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().split("\r\n")
            given = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            await reader.readexactly(int(given["content-length"]))
            if " /live " not in lines[0]:
                await reader.read()  # until who asked has gone
                return
            self.arrived[given["webhook-id"]] = time.monotonic()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def measure(server: DurableServer, place: Path, scale: Scale) -> Iterator[Figure]:
    """Deliver alone and beside the dead endpoint, in turns."""
    alone, beside = [], []
    for _ in range(scale.rounds):
        alone.append(_p95_ms(server, dead=0))
        beside.append(_p95_ms(server, dead=DEAD))
    ratios = [other / own for own, other in zip(alone, beside, strict=True)]
    yield Figure(
        part=PART,
        name=f"a live endpoint beside {DEAD:,} deliveries to one that hangs, p95 of alone",
        value=100 * median(ratios),
        unit="%",
        at_most=200,
        note=f"median of {scale.rounds}, {median(alone):.1f} ms and {median(beside):.1f} ms",
        detail={"by_round": ratios},
    )


def _p95_ms(server: DurableServer, *, dead: int) -> float:
    with server.database() as url, _Receiver() as receiver:
        os.environ["ROTA_DATABASE_URL"] = url
        own = webhook.Webhooks()
        with psycopg.connect(url, autocommit=True) as connection:
            declared = rota.App(url, jobs=[own.jobs])
            declared.migrate()
            declared.sync()
            for name in ("live", "dead"):
                to = f"http://127.0.0.1:{receiver.port}/{name}"
                own.put(name, to, events=[name], allow_private=True)
            for number in range(dead):
                own.emit("dead", event_id=f"dead:{number}", connection=connection)
            with _worker(url):
                own.emit("live", event_id="first")
                _wait(lambda: "first" in receiver.arrived, ARRIVE_S)
                if dead:
                    opened = "select from rota.breakers where key = 'dead' and state = 'open'"
                    _wait(lambda: connection.execute(opened).fetchone() is not None, OPEN_S)
                sent = {}
                for number in range(LIVE):
                    sent[f"live:{number}"] = time.monotonic()
                    own.emit("live", event_id=f"live:{number}", connection=connection)
                    time.sleep(LIVE_EVERY_S)
                _wait(lambda: sent.keys() <= receiver.arrived.keys(), ARRIVE_S)
            declared.close()
        took = [1000 * (receiver.arrived[event] - at) for event, at in sent.items()]
        return quantiles(took, n=20)[-1]


@contextmanager
def _worker(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "rota", "work", "--app", "bench.webhooks:app"]
    process = subprocess.Popen(
        [*command, "--concurrency", str(SLOTS), "--grace", "0s"],
        cwd=ROOT,
        env={**os.environ, "ROTA_DATABASE_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _wait(is_so: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not so within {within_s:g} s")
        time.sleep(0.02)
