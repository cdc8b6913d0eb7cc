"""The page of Ray, followed on a cluster of real processes, which are killed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from rota.observe.events import JobFailed, JobSucceeded
from tests.docs import ray_jobs
from tests.docs.reader import Reader, read_page
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.process import ROOT
from tests.worker.table import Connection, put, rows, status
from tests.worker.test_dask import is_there, noted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are for Linux"),
    pytest.mark.skipif(
        find_spec("ray") is None, reason="NOT TRIED: the page of Ray; pip install ray"
    ),
]

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Otherwise a cluster of one machine listens on all its addresses. A driver needs it too."""
WITHOUT_HEAD_S = 5
"""Seconds after which Ray ends a driver without the head; unless it is told, 60."""


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_child(pid: int, program: str) -> None:
    """Kill those of them that run a program."""
    for child in children(pid):
        if Path(f"/proc/{child}/comm").read_text().strip() == program:
            os.kill(child, signal.SIGKILL)


@contextmanager
def run_ray(*code: str) -> Iterator[tuple[int, str]]:
    """Run a cluster of one node with two CPUs, whose processes find these directories; yield the
    process that has started its own, and its address."""
    # Its sockets stand there, and their paths may have 107 bytes.
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    port = unused_port()
    command = ["start", "--head", "--block", f"--port={port}", f"--temp-dir={place}"]
    command += ["--num-cpus=2", "--object-store-memory=80000000", "--include-dashboard=false"]
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *command, "--disable-usage-stats"],
            env={
                **os.environ,
                **LOOPBACK,
                "PYTHONPATH": ":".join([str(ROOT / "src"), str(ROOT), *code]),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as head,
    ):
        own: list[int] = []
        try:
            eventually(lambda: "Ray runtime started" in (place / "log").read_text(), 120)
            own = children(head.pid)
            yield head.pid, f"127.0.0.1:{port}"
        finally:
            head.terminate()
            try:
                head.wait(60)
            finally:
                head.kill()
            assert not [pid for pid in own if is_there(pid)]
            shutil.rmtree(place, ignore_errors=True)


def follow_the_page(server: PostgresServer, url: str, place: Path, address: str) -> None:
    """Type what the page says."""
    with Reader(place, server, url) as reader:
        reader.environment["ROTA_DATABASE_URL"] = url
        page = read_page("ray.md").replace("pip install ray\n", "")
        before, after = page.split("export RAY_ADDRESS=127.0.0.1:6379\n")
        reader.follow(re.sub(r"```sh\n\Z", "", before))
        reader.environment["RAY_ADDRESS"] = address
        reader.follow("```sh\n" + after)
        shown = reader.type("rota job 1 --app computing:app --json")
    assert '"status":"succeeded"' in shown
    assert f'"result":{sum(n * n for n in range(40_500))}' in shown
    assert '"done":41' in shown


@rule("M33", "M2", "M35", "M83", "M87")
async def test_the_page_holds_on_a_cluster_that_is_killed(
    server: PostgresServer,
    empty_database: str,
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One story, as each cluster takes ten seconds of a core to start."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(WITHOUT_HEAD_S))
    for name, setting in LOOPBACK.items():
        monkeypatch.setenv(name, setting)
    reading = tmp_path / "reader"
    reading.mkdir()

    @asynccontextmanager
    async def begun(job_type: str, name: str) -> AsyncIterator[tuple[Hand, int, int]]:
        """A worker whose handler waits for its task; that job, and the process of the task."""
        where = {"place": str(tmp_path / name), "go": str(tmp_path / f"{name}.go")}
        job = put(connection, job_type, **where)
        async with Hand(database, ray_jobs.jobs) as hand:
            pid, _ = await noted(tmp_path / name)
            yield hand, job, pid

    async def gone(pid: int) -> None:
        await asyncio.to_thread(eventually, lambda: not is_there(pid), 60)

    async def fails(hand: Hand, job: int) -> str:
        failed = await hand.heard(JobFailed, job=job, timeout_s=90)
        return failed.failure.error_type

    with run_ray(str(reading)) as (head, address):
        await asyncio.to_thread(follow_the_page, server, empty_database, reading, address)
        monkeypatch.setenv("RAY_ADDRESS", address)

        async with begun("late", "late") as (hand, job, pid):
            assert await fails(hand, job) == "rota.errors.AttemptTimeout"
            await gone(pid)
            connection.execute("select rota.job_discard(array[%s::bigint], 'seen')", [job])

        async with begun("computes", "cancelled") as (hand, job, pid):
            connection.execute("select rota.job_cancel(array[%s::bigint], 'not wanted')", [job])
            await hand.until(lambda: status(connection, job) == "cancelled")
            await gone(pid)

        async with begun("computes", "killed") as (hand, job, pid):
            os.kill(pid, signal.SIGKILL)
            assert await fails(hand, job) == "ray.exceptions.WorkerCrashedError"
            await noted(tmp_path / "killed", 2)
            (tmp_path / "killed.go").touch()
            await hand.heard(JobSucceeded, job=job, timeout_s=60)
        read = "select status, attempts from rota.job_history where id = %s"
        assert rows(connection, read, job) == [("succeeded", 2)]

        await asyncio.to_thread(kill_a_worker, connection, database, tmp_path)

        async with begun("computes", "lost") as (hand, job, _):
            kill_child(head, "gcs_server")
            # As its node or its driver is the first to learn it.
            assert await fails(hand, job) in (
                "ray.exceptions.NodeDiedError",
                "rota.errors.ProcessDied",
            )


def kill_a_worker(connection: Connection, database: str, place: Path) -> None:
    """Kill a worker whose handler waits for a task: the task ends."""
    put(connection, "computes", place=str(place / "left"), go=str(place / "left.go"))
    (place / "driving.py").write_text(
        "import rota\nfrom tests.docs.ray_jobs import jobs\napp = rota.App(jobs=[jobs])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "rota", "work", "--app=driving:app"],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "ROTA_DATABASE_URL": database,
        },
    ) as worker:
        try:
            pid, _ = asyncio.run(noted(place / "left"))
        finally:
            worker.kill()
    eventually(lambda: not is_there(pid), 60)
