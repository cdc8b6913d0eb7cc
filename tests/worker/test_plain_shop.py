"""Everything that users of plain functions need, from their side: no event loop is in sight."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker import plain_shop as shop
from tests.worker.table import Connection, value

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]


@pytest.fixture
def worker(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """The shop's worker; the shop in this process uses the same database."""
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    vars(shop.app).pop("_database", None)
    shop.app.sync()
    with (tmp_path / "log").open("wb") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        command = ["-m", "tests.worker.plain_shop"]
        process = forked.start(command, cwd=ROOT, env=os.environ, **streams)
    yield process
    process.kill()
    process.wait()
    shop.app.close()


@rule("M1", "M35", "M83", "M87")
def test_plain_functions_are_run_watched_cancelled_timed_out_and_stopped(
    worker: subprocess.Popen[bytes], connection: Connection
) -> None:
    app = shop.app
    counting, hanging = shop.count.enqueue(to=100_000).id, shop.hang.enqueue().id
    squared, charged = shop.square.enqueue(number=12).id, shop.charge.enqueue(invoice=812).id
    shop.ping.enqueue()

    first = eventually(lambda: app.get(counting).progress, what="progress is seen")
    assert first is not None and (first.total, first.note) == (100_000, "steps")
    assert app.join(squared, timeout="30s").result == 144
    assert app.join(charged, timeout="30s").result == "charged 812"
    assert app.join(hanging, timeout="30s").error_type == "rota.errors.AttemptTimeout"

    app.cancel(counting, why="not needed")
    over = app.join(counting, timeout="30s")
    assert (over.status, over.cancel_reason) == ("cancelled", "not needed")
    eventually(
        lambda: value(connection, "select count(*) from rota.jobs where job_type = 'ping'") == 0,
        what="a success that leaves no row",
    )

    again = shop.count.enqueue(to=100_000).id
    eventually(lambda: app.get(again).progress, what="it has begun")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    left = app.get(again)
    assert (left.status, left.attempts, left.losses) == ("queued", 0, 1), (
        "told after the grace period, it stopped, and is handed back"
    )


def test_the_shop_knows_no_event_loop() -> None:
    text = Path(shop.__file__).read_text(encoding="utf-8")
    assert "async" not in text and "await" not in text
