"""What a Prometheus server sees of a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.parser import text_string_to_metric_families

import rota
from rota.observe.events import WorkerStarted

Samples = dict[tuple[str, ...], float]


def scrape(port: int) -> Samples:
    """The samples of a health port, by name and the values of labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=15) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return read(answer.read().decode())


def read(text: str) -> Samples:
    """The same of a text."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, key
            found[key] = sample.value
    return found


@asynccontextmanager
async def work(
    app: rota.App, port: int | None = None, *, signals: bool = False
) -> AsyncIterator[None]:
    """Let a worker run for a block; with `signals` it stops as a service does, else it is
    cancelled."""
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    app.on(WorkerStarted, lambda _: loop.call_soon(started.set))
    working = asyncio.create_task(app.arun(health_port=port, signals=signals))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait([working, starting], return_when=asyncio.FIRST_COMPLETED)
    assert not working.done(), working.result()
    try:
        yield
    finally:
        if signals:
            assert threading.current_thread() is threading.main_thread()
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await app.aclose()
