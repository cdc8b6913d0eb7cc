"""A machine that gives no more files or threads: no job is dead of it that never began."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

import rota
from rota.errors import ProcessesFailed
from rota.observe.events import JobSucceeded
from rota.runtime import supervisor
from rota.runtime.supervisor import ENDS_MAX, Supervisor
from rota.store import statements
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.process import ROOT
from tests.worker.table import Connection, put, rows, status

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="as Linux counts them"),
]


def _at_most(files: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


@pytest.mark.nightly
@rule("M33", "M83")
@pytest.mark.parametrize("files", [11, 15])
def test_a_worker_without_descriptors_fails_with_a_reason_and_charges_no_job(
    database: str, connection: Connection, files: int
) -> None:
    put(connection, "quick")
    connection.execute("update rota.job set max_attempts = 1")
    ran = subprocess.run(
        [sys.executable, "-m", "rota", "work", "--drain", "--app=tests.worker.worker_app:app"],
        check=False,
        cwd=ROOT,
        env={**os.environ, "ROTA_DATABASE_URL": database, "WORKER_NOTES": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=_at_most(files),
    )
    done = rows(connection, "select status from rota.jobs")
    if ran.returncode == 0:
        assert done == [("succeeded",)]
    else:
        assert ran.stderr
        assert done in ([("queued",)], [("succeeded",)]), ran.stderr


@rule("M83")
async def test_a_worker_needs_no_more_files_of_rotas_once_it_has_begun(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handlers may have used up the descriptors, or a deploy may have replaced the package."""

    def none(name: str) -> str:
        raise OSError(errno.EMFILE, "Too many open files", name)

    statements.source.cache_clear()
    jobs = rota.Jobs()

    @jobs.job("fine")
    async def fine() -> None: ...

    async with Hand(database, jobs) as hand:
        monkeypatch.setattr(statements, "source", none)
        job = put(connection, "fine")
        await hand.heard(JobSucceeded, job=job)
    assert status(connection, job) == "succeeded"


@rule("M83")
def test_a_parent_that_gets_no_room_for_a_process_tries_again_and_gives_up_with_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []

    def none(*_: object, **__: object) -> None:
        tries.append(1)
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.01, 0.01))
    with pytest.raises(
        ProcessesFailed, match=r"could not be started: .* Resource temporarily unavailable"
    ):
        Supervisor(["nothing"], 2, drain=False).run()
    assert len(tries) == ENDS_MAX
