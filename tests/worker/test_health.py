"""Whether a worker lives and is ready: `/healthz` and `/readyz`, of one worker and of several
processes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pytest

import rota
from rota.observe.events import Bus
from rota.runtime import health_server
from rota.runtime.health_server import serve_health
from rota.runtime.service import PauseGate, Service
from rota.worker import health as vitals
from rota.worker.health import SILENT_S, Health
from rota.worker.loop_watch import LoopWatch
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker.conftest import StartWorker
from tests.worker.hand import Hand
from tests.worker.supervisor import probe
from tests.worker.table import Connection, put

pytestmark = pytest.mark.system


@rule("M81", "M86")
def test_a_worker_is_ready_once_it_claims_and_until_it_is_told_to_stop(
    start_worker: StartWorker, database: str, connection: Connection, tmp_path: Path, free_port: int
) -> None:
    worker = start_worker(database, health_port=free_port)
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"))
    assert probe(free_port, "/healthz?verbose") == (200, "ok")
    assert probe(free_port, "/") == (404, "ask /healthz or /readyz")
    job = put(connection, "hold", until=str(tmp_path / "go"))
    worker.until_noted(f"start {job}")
    worker.signal(signal.SIGTERM)
    eventually(lambda: probe(free_port, "/readyz") == (503, "stopping"))
    assert probe(free_port, "/healthz") == (200, "ok")
    (tmp_path / "go").touch()
    assert worker.wait() == 0, worker.log
    assert probe(free_port, "/healthz")[0] == 0


@rule("M86")
async def test_a_worker_that_is_still_entering_its_lifespan_lives_and_is_not_ready(
    database: str, free_port: int
) -> None:
    from contextlib import asynccontextmanager

    entered, go = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow_to_start():  # type: ignore[no-untyped-def]
        entered.set()
        await go.wait()
        yield

    app = rota.App(database, lifespan=slow_to_start)
    app.job("a")(lambda: None)
    working = asyncio.create_task(app.arun(health_port=free_port))
    await entered.wait()
    assert await asyncio.to_thread(probe, free_port, "/readyz") == (503, "starting")
    assert await asyncio.to_thread(probe, free_port, "/healthz") == (200, "ok")
    go.set()
    await aeventually(lambda: probe(free_port, "/readyz") == (200, "ok"))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert (await asyncio.to_thread(probe, free_port, "/readyz"))[0] == 0
    await app.aclose()


@rule("M86")
async def test_a_loop_that_a_handler_blocks_is_not_well_and_neither_is_it_ready(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "WEDGED_S", 1.5)
    jobs = rota.Jobs()
    seen: list[tuple[str | None, str | None]] = []
    told = threading.Event()

    @jobs.job("blocks")
    async def blocks() -> None:
        told.wait(20)

    async with Hand(database, jobs) as hand:
        health = hand.worker.health
        await hand.until(lambda: health.readiness() is None)

        def watch() -> None:
            eventually(lambda: health.liveness() is not None)
            seen.append((health.liveness(), health.readiness()))
            told.set()

        watching = asyncio.create_task(asyncio.to_thread(watch))
        put(connection, "blocks")
        await watching
        await aeventually(lambda: (health.liveness(), health.readiness()) == (None, None))
    [said] = seen
    assert all(
        re.fullmatch(r"the event loop has been blocked for \d+ s", why or "") for why in said
    ), said
    assert (health.liveness(), health.readiness()) == (None, "stopping")


@rule("M86")
def test_clients_that_send_slowly_keep_no_probe_out(
    free_port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health_server, "CLIENTS_MAX", 3)
    with serve_health(free_port, lambda: None, lambda: "starting"), ExitStack() as stack:

        def connect() -> socket.socket:
            client = socket.create_connection(("127.0.0.1", free_port), 60)
            stack.enter_context(client).sendall(b"GET /healthz")
            return client

        first, *_ = [connect() for _ in range(3)]
        assert probe(free_port, "/healthz") == (200, "ok")
        with suppress(ConnectionResetError):
            assert first.recv(1) == b""  # the oldest has made room
    assert not caplog.records


class _Part(Service):
    async def tick(self) -> float | None:
        raise NotImplementedError


async def test_a_database_that_takes_a_question_and_never_answers_is_noticed() -> None:
    clock = ManualClock()
    health = Health(PauseGate(), clock)
    health.begin(LoopWatch(Bus(), clock, {}), _Part(Bus()))
    assert health.readiness() is None
    clock.advance(SILENT_S + 1)
    assert re.fullmatch(r"the database has not answered for \d+ s", health.readiness() or "")


def test_a_health_port_that_is_taken_is_a_configuration_error_before_anything_is_started(
    database: str, free_port: int
) -> None:
    app = rota.App(database)
    app.job("a")(lambda: None)
    with (
        socket.create_server(("", free_port)),
        pytest.raises(
            rota.errors.ConfigurationError, match=f"health port {free_port} cannot be listened on"
        ),
    ):
        app.run(health_port=free_port)
    with psycopg.connect(database) as connection:
        assert connection.execute("select from rota.worker").fetchall() == []
    with pytest.raises(
        rota.UsageError, match="health_port must be a whole number from 1 to 65,535"
    ):
        app.run(health_port=0)
    app.close()
