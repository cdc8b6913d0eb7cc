"""The blocks of breakers.md do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.docs.reader import read_page
from tests.support import forked
from tests.support.rules import rule
from tests.support.web import serving
from tests.worker.table import Connection, rows

PAGE = read_page("breakers.md")
DECLARATION, *BY_HAND = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@rule("M63", "M87")
@pytest.mark.slow
@pytest.mark.system
def test_every_shell_line_of_the_page_does_what_it_says(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(DECLARATION)
    forked.write_rota(tmp_path)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ROTA_APP": "shop:app",
        "ROTA_DATABASE_URL": database,
    }
    said = {}
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        said[line] = done.stdout
    assert "partner.example" in said["rota breakers"]
    assert "they asked us to stop" in said["rota breakers"]


@rule("M63")
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_handler_of_the_page_opens_its_breaker_and_the_calls_by_hand_hold(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    names: dict[str, Any] = {}
    exec(DECLARATION, names)  # the page is ours; its errors keep their connections
    app: rota.App = names["app"]
    with serving() as web:
        web.status = 503
        for number in range(7):
            names["deliver"].enqueue(web.url, f"e{number}")
        app.drain(concurrency=1, reserved=0)  # one after the other: the fifth failure opens it
        assert len(web.asked) == 5
    assert rows(connection, "select status, attempts from rota.job order by 1, 2") == [
        *[("failed", 1)] * 5,
        *[("queued", 0)] * 2,
    ]
    for block in BY_HAND:
        exec(block, names)
    app.close()
