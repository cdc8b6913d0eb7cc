"""Handlers with `process=rota.Process(cluster="dask")`: on a cluster of real processes, which are
killed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rota
from rota.errors import ConfigurationError, UsageError
from rota.observe.events import JobFailed, JobHandedBack, JobSucceeded
from rota.worker.processes.importable import check_importable
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.worker import cluster_jobs
from tests.worker.hand import Hand
from tests.worker.process import ROOT, lives
from tests.worker.table import Connection, put, rows, status, value

HAS_DASK = importlib.util.find_spec("distributed") is not None
needs_dask = pytest.mark.skipif(
    not HAS_DASK, reason="NOT TRIED: handlers on a Dask cluster; pip install 'rota[dask]'"
)
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are for Linux"),
]

CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True,
                           host="127.0.0.1", dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()
"""


@contextmanager
def run_cluster(place: Path, *code: str) -> Iterator[str]:
    """Run a LocalCluster with two nannies and their worker processes, which find these directories;
    yield the address of its scheduler."""
    (place / "run_cluster.py").write_text(CLUSTER)
    path = ":".join([str(ROOT / "src"), str(ROOT), *code])
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "run_cluster.py"],
            cwd=place,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as cluster,
    ):
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        try:
            assert address.startswith("tcp://"), (place / "log").read_text()
            yield address
        finally:
            cluster.stdin.close()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster's scheduler."""
    with run_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture
def cluster(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker finds the cluster."""
    monkeypatch.setenv("ROTA_DASK_SCHEDULER", scheduler)


async def noted(place: Path, count: int = 1) -> tuple[int, int]:
    """Wait until a handler has begun so often; return its process and its cluster worker."""

    def read() -> list[str]:
        lines = place.read_text().splitlines() if place.exists() else []
        return lines if len(lines) >= count else []

    lines = await aeventually(read, 60)
    pid, parent = lines[-1].split()
    return int(pid), int(parent)


@pytest.mark.nightly
@needs_dask
@rule("M41", "M43", "M52", "M54", "M87")
@pytest.mark.usefixtures("cluster")
async def test_results_errors_progress_effects_and_transactions_are_the_worker_s(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    added, failed = put(connection, "add", a=1, b=2), put(connection, "fails")
    reported = put(connection, "reports", go=str(tmp_path / "go"))
    async with Hand(database, cluster_jobs.jobs) as hand:
        polite = put(connection, "polite", place=str(tmp_path / "begun"))
        await noted(tmp_path / "begun")
        connection.execute("select rota.job_cancel(array[%s::bigint], 'not wanted')", [polite])
        await hand.until(lambda: status(connection, polite) == "cancelled")
        await hand.heard(JobSucceeded, job=added)
        read = "select progress ->> 'done' from rota.jobs where id = %s"
        await aeventually(lambda: value(connection, read, reported) == "1", 60)
        (tmp_path / "go").touch()
        await hand.heard(JobSucceeded, job=reported)
        await hand.until(lambda: status(connection, failed) == "dead")
    result = value(connection, "select result from rota.jobs where id = %s", added)
    assert isinstance(result, dict)
    assert (result["sum"], result["attempt"]) == (3, 1)
    assert result["parent"] != os.getpid()
    assert lives(result["parent"])  # a worker of the cluster
    [(kind, message, stack)] = rows(
        connection, "select error_type, message, stack from rota.attempt where job = %s", failed
    )
    assert (kind, message) == ("ValueError", "not on this cluster")
    assert "in fails" in stack
    assert rows(connection, "select value from written") == [("called",)]
    assert rows(connection, "select count(*) from rota.effect") == [(1,)]


@pytest.mark.nightly
@needs_dask
@rule("M35")
@pytest.mark.usefixtures("cluster")
async def test_a_handler_over_its_time_or_its_memory_is_killed_where_it_runs(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    late, fat = put(connection, "hangs", place=str(tmp_path / "late")), put(connection, "eats")
    async with Hand(database, cluster_jobs.jobs) as hand:
        pid, parent = await noted(tmp_path / "late")
        await hand.heard(JobFailed, job=late)
        await aeventually(lambda: not lives(pid))
        assert lives(parent)
        await hand.until(lambda: status(connection, fat) == "dead")
    read = "select job, error_type from rota.attempt where attempt = 1 order by job"
    assert rows(connection, read) == [
        (late, "rota.errors.AttemptTimeout"),
        (fat, "rota.errors.MemoryExceeded"),
    ]


@pytest.mark.nightly
@needs_dask
@rule("M33", "M2")
@pytest.mark.usefixtures("cluster")
async def test_a_killed_cluster_worker_is_a_lost_attempt_and_the_job_runs_again(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "until", place=str(tmp_path / "begun"), go=str(tmp_path / "go"))
    async with Hand(database, cluster_jobs.jobs) as hand:
        pid, parent = await noted(tmp_path / "begun")
        os.kill(parent, signal.SIGKILL)
        failed = await hand.heard(JobFailed, job=job)
        assert failed.failure.error_type == "rota.errors.ProcessDied"
        assert "was lost" in failed.failure.message
        # The kernel has killed the handler with its cluster worker: there are never two.
        assert not lives(pid)
        again = await noted(tmp_path / "begun", 2)
        assert again[0] != pid
        (tmp_path / "go").touch()
        await hand.heard(JobSucceeded, job=job)
    assert rows(connection, "select status, attempts from rota.job_history") == [("succeeded", 2)]


@pytest.mark.nightly
@needs_dask
@rule("M33", "M2")
async def test_a_handler_has_ended_before_its_job_runs_again_though_its_cluster_stands_still(
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = put(connection, "until", place=str(tmp_path / "begun"), go=str(tmp_path / "go"))
    with run_cluster(tmp_path) as address:
        monkeypatch.setenv("ROTA_DASK_SCHEDULER", address)
        async with Hand(database, cluster_jobs.jobs) as hand:
            pid, parent = await noted(tmp_path / "begun")
            os.kill(parent, signal.SIGSTOP)
            try:
                failed = await hand.heard(JobFailed, job=job)
                assert not lives(pid)
            finally:
                os.kill(parent, signal.SIGCONT)
            assert failed.failure.error_type == "rota.errors.ProcessDied"
            (tmp_path / "go").touch()
            await hand.heard(JobSucceeded, job=job)


@pytest.mark.nightly
@needs_dask
@rule("M33", "M83")
@pytest.mark.usefixtures("cluster")
def test_the_cluster_ends_the_handlers_of_a_worker_process_that_is_gone(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    put(connection, "until", place=str(tmp_path / "begun"), go=str(tmp_path / "go"))
    path = f"{ROOT / 'src'}:{ROOT}"
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rota",
            "work",
            "--app=tests.worker.cluster_app:app",
            "--grace=0.1s",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "ROTA_DATABASE_URL": database},
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            pid, parent = asyncio.run(noted(tmp_path / "begun"))
            # Like one whose code lets no other thread run, it cannot end itself.
            os.kill(pid, signal.SIGSTOP)
            worker.kill()
            _, log = worker.communicate(timeout=60)
        finally:
            worker.kill()
    assert "Traceback" not in log
    eventually(lambda: not lives(pid), 60)
    assert lives(parent)


@needs_dask
@rule("M33")
async def test_a_cluster_that_cannot_be_reached_uses_no_attempt(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DASK_SCHEDULER", "tcp://127.0.0.1:1")
    monkeypatch.setattr("rota.integrations.dask.CONNECT_S", 0.5)
    job = put(connection, "add", a=1, b=2)
    async with Hand(database, cluster_jobs.jobs) as hand:
        handed_back = await hand.heard(JobHandedBack, job=job)
    assert "the Dask scheduler does not answer" in handed_back.why
    assert rows(connection, "select status, attempts from rota.job") == [("queued", 0)]


@needs_dask
@rule("M2")
def test_a_worker_without_the_address_or_with_a_lease_that_a_handler_may_outlive_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = rota.Jobs()
    jobs.job("short", process=rota.Process(cluster="dask"), lease="10s")(cluster_jobs.fails.func)
    jobs.job("plain", process=rota.Process(cluster="dask"))(cluster_jobs.fails.func)
    short, plain = (job_type._declaration for job_type in jobs.types.values())
    monkeypatch.delenv("ROTA_DASK_SCHEDULER", raising=False)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with pytest.raises(ConfigurationError, match="no scheduler: set ROTA_DASK_SCHEDULER"):
        check_importable([plain], lease_s=120)
    monkeypatch.setenv("ROTA_DASK_SCHEDULER", "tcp://127.0.0.1:1")
    for declaration, lease_s in ((short, 120), (plain, 19)):
        with pytest.raises(ConfigurationError, match="a lease of 20 s or more"):
            check_importable([declaration], lease_s)
    check_importable([plain], lease_s=20)


@pytest.mark.skipif(HAS_DASK, reason="Dask is installed")
def test_a_worker_without_dask_says_what_to_install() -> None:
    declared = [job_type._declaration for job_type in cluster_jobs.jobs.types.values()]
    with pytest.raises(ConfigurationError, match=r"pip install 'rota\[dask\]'"):
        check_importable(declared, lease_s=120)


def test_another_cluster_is_refused_at_declaration() -> None:
    with pytest.raises(UsageError, match='cluster must be "dask" or None'):
        rota.Process(cluster="ray")
