"""`rota work --reload`: a real worker, restarted by real changes of files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from rota.cli import run
from tests.support.cli import CommandLine
from tests.support.wait import eventually

pytestmark = pytest.mark.system

SHOP = """
import asyncio
import rota

app = rota.App(release="{0}")


@app.job("hang", takes_context=True, max_attempts=5)
async def hang(ctx):
    print("hang begins in {0}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("hang ends:", ctx.cancelled, flush=True)
"""


class Reloading:
    """A reloader, its project and what both have printed."""

    def __init__(self, place: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._place = place
        self._log = log

    def write(self, text: str) -> None:
        """Write the project, as an editor does."""
        (self._place / "shop.py").write_text(text)

    def until(self, pattern: str) -> None:
        """Wait until this is printed."""
        eventually(lambda: re.search(pattern, self._log.read_text()), 60, what=pattern)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def workers(self) -> list[int]:
        """The worker, or none."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]


@contextmanager
def start(place: Path, database: str) -> Iterator[Reloading]:
    """`rota work --reload` in a project whose release is 1; killed at the end."""
    shell = CommandLine(place, ROTA_DATABASE_URL=database, ROTA_APP="shop:app")
    (place / "shop.py").write_text(SHOP.format("release-1"))
    shell.ok("migrate")
    log = place / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "rota", "work", "--reload", "--grace", "0.2s"],
            cwd=place,
            env={**os.environ, **shell.environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            yield Reloading(place, process, log)
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_change_stops_the_worker_as_usual_and_starts_the_new_code_once_it_can_be_imported(
    database: str, tmp_path: Path
) -> None:
    with start(tmp_path, database) as reloading, psycopg.connect(database) as connection:
        reloading.until("started, release release-1")
        connection.execute("select rota.enqueue('hang', '{}')")
        connection.commit()
        reloading.until("hang begins in release-1")
        reloading.write("import rota\napp = (")
        reloading.until("shop.py changed: the worker restarts")
        reloading.until("hang ends: the worker is going down")
        reloading.until("SyntaxError")
        reloading.until("the worker exited with status 3: it starts again when a file changes")
        assert reloading.workers == []
        reloading.write(SHOP.format("release-2"))
        reloading.until("started, release release-2")
        reloading.until("hang begins in release-2")
        [worker] = reloading.workers
        reloading.process.send_signal(signal.SIGINT)
        assert reloading.process.wait(60) == 0, reloading.log
        assert not psutil.pid_exists(worker)
        [(why,)] = connection.execute("select last_error from rota.job").fetchall()
        assert why == "the worker went down while the handler ran"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills with the parent")
def test_a_killed_reloader_leaves_no_worker(database: str, tmp_path: Path) -> None:
    with start(tmp_path, database) as reloading:
        reloading.until("started, release release-1")
        [worker] = reloading.workers
        reloading.process.kill()
        eventually(
            lambda: (
                not psutil.pid_exists(worker)
                or psutil.Process(worker).status() == psutil.STATUS_ZOMBIE
            )
        )


def test_what_cannot_be_reloaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--drain", "--processes=2"):
        assert run(["work", "--reload", option]) == 2
        assert "give --reload alone" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert run(["work", "--reload", "--app", "shop:app"]) == 3
    assert "pip install 'rota[reload]'" in capsys.readouterr().err
