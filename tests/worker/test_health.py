"""Whether a worker lives and is ready: `/healthz` and `/readyz`, of one worker and of several
processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import threading
import urllib.request
from pathlib import Path

import psycopg
import pytest

import rota
from rota.observe.events import Bus
from rota.runtime.health_server import CLIENTS_MAX, serve_health
from rota.runtime.service import PauseGate, Service
from rota.runtime.supervisor import Supervisor
from rota.worker import health as vitals
from rota.worker.health import SILENT_S, Health
from rota.worker.loop_watch import LoopWatch
from tests.support.clock import ManualClock
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import StartSupervisor, StartWorker
from tests.worker.hand import Hand
from tests.worker.supervisor import probe, refusal
from tests.worker.table import Connection, put

pytestmark = [pytest.mark.waits, pytest.mark.system]

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="--processes is for Linux")


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
    await asyncio.to_thread(eventually, lambda: probe(free_port, "/readyz") == (200, "ok"))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert (await asyncio.to_thread(probe, free_port, "/readyz"))[0] == 0
    await app.aclose()


@rule("M86")
def test_a_worker_whose_database_is_away_lives_and_is_not_ready(
    start_worker: StartWorker, own_server: PostgresServer, free_port: int
) -> None:
    from rota.store.migrate import migrate

    migrate(own_server.url())
    start_worker(own_server.url(), health_port=free_port)
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"))
    own_server.stop("immediate")
    why = eventually(lambda: refusal(free_port, "/readyz"))
    assert why.startswith("the database has not answered for ") and "127.0.0.1" not in why
    assert probe(free_port, "/healthz") == (200, "ok")
    own_server.start()
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"))


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
            eventually(lambda: health.liveness() is not None, 20)
            seen.append((health.liveness(), health.readiness()))
            told.set()

        watching = asyncio.create_task(asyncio.to_thread(watch))
        put(connection, "blocks")
        await watching
        await asyncio.to_thread(
            eventually, lambda: (health.liveness(), health.readiness()) == (None, None)
        )
    [said] = seen
    assert all(
        re.fullmatch(r"the event loop has been blocked for \d+ s", why or "") for why in said
    ), said
    assert (health.liveness(), health.readiness()) == (None, "stopping")


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


def test_a_client_that_says_nothing_keeps_no_probe_from_its_answer(free_port: int) -> None:
    with (
        serve_health(free_port, lambda: None, lambda: "not yet"),
        socket.create_connection(("127.0.0.1", free_port)),
    ):
        assert probe(free_port, "/readyz") == (503, "not yet")
        head = urllib.request.Request(f"http://127.0.0.1:{free_port}/healthz", method="HEAD")
        with urllib.request.urlopen(head, timeout=5) as answer:
            assert (answer.status, answer.read()) == (200, b"")


@rule("M86")
def test_clients_that_say_nothing_do_not_take_a_thread_each(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With the default, clients that do send requests are disconnected after five seconds.
    monkeypatch.setattr("rota.runtime.health_server._Request.timeout", 60.0)
    others = {*threading.enumerate()}

    def count_request_threads() -> int:
        return sum(
            "process_request_thread" in thread.name for thread in {*threading.enumerate()} - others
        )

    with serve_health(free_port, lambda: None, lambda: None):
        silent = [
            socket.create_connection(("127.0.0.1", free_port)) for _ in range(CLIENTS_MAX + 8)
        ]
        eventually(lambda: count_request_threads() == CLIENTS_MAX)
        assert all(one.recv(1) == b"" for one in silent[CLIENTS_MAX:]), (
            "the last to come are let go"
        )
        assert count_request_threads() == CLIENTS_MAX
        for one in silent:
            one.close()
        eventually(lambda: probe(free_port, "/healthz") == (200, "ok"))


@LINUX_ONLY
@rule("M86")
def test_several_processes_are_ready_when_all_are_and_well_while_one_is_replaced(
    start_supervisor: StartSupervisor,
    database: str,
    connection: Connection,
    tmp_path: Path,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_start = tmp_path / "may_start"
    (tmp_path / "slow.py").write_text(f"""
import os, time
while not os.path.exists({str(may_start)!r}):
    time.sleep(0.02)
from tests.worker.worker_app import app
""")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    supervisor = start_supervisor(
        database, 2, f"--health-port={free_port}", "--concurrency=1", app="slow:app"
    )
    early = eventually(lambda: refusal(free_port, "/readyz"))
    assert early.endswith("of 2 worker processes are up")
    may_start.touch()
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"), 60)
    jobs = [put(connection, "hold", until=str(tmp_path / "go")) for _ in range(2)]
    for job in jobs:
        supervisor.until_noted(f"start {job}")
    may_start.unlink()
    supervisor.children()[0].kill()
    eventually(
        lambda: refusal(free_port, "/readyz").endswith(": starting"),
        what="the one that replaces it is there",
    )
    assert probe(free_port, "/healthz") == (200, "ok")
    may_start.touch()
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"), 60)
    supervisor.signal(signal.SIGTERM)
    eventually(lambda: probe(free_port, "/readyz") == (503, "stopping"))
    (tmp_path / "go").touch()
    assert supervisor.wait() == (0, ""), supervisor.log


@LINUX_ONLY
@rule("M86")
def test_several_processes_are_not_well_when_one_is_frozen_or_its_loop_is_blocked(
    start_supervisor: StartSupervisor,
    database: str,
    connection: Connection,
    tmp_path: Path,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKER_WEDGED_S", "3")
    supervisor = start_supervisor(
        database, 1, f"--health-port={free_port}", "--concurrency=1", times={"SILENT_S": 3.0}
    )
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"), 60)
    [child] = supervisor.children()
    child.suspend()
    why = eventually(lambda: refusal(free_port, "/healthz"))
    assert why.startswith(f"worker process {child.pid}: silent for ")
    child.resume()
    eventually(lambda: probe(free_port, "/healthz") == (200, "ok"))
    put(connection, "wedge", until=str(tmp_path / "go"))
    why = eventually(lambda: refusal(free_port, "/healthz"))
    assert why.startswith(f"worker process {child.pid}: the event loop has been blocked for ")
    assert probe(free_port, "/readyz")[0] == 503
    (tmp_path / "go").touch()
    eventually(lambda: probe(free_port, "/readyz") == (200, "ok"))


def test_processes_that_are_not_up_are_not_ready() -> None:
    supervisor = Supervisor(["never started"], 2, drain=False)
    assert (supervisor.liveness(), supervisor.readiness()) == (
        None,
        "0 of 2 worker processes are up",
    )


@LINUX_ONLY
def test_a_taken_health_port_ends_several_processes_before_they_begin(
    start_supervisor: StartSupervisor, database: str, free_port: int
) -> None:
    with socket.create_server(("", free_port)):
        supervisor = start_supervisor(database, 2, f"--health-port={free_port}")
        assert supervisor.wait() == (3, "")
    assert (
        supervisor.log.startswith(f"rota: the health port {free_port} cannot be listened on")
        and supervisor.log.count("\n") == 1
    )
