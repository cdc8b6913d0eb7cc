"""The blocks of drain-endpoint.md drain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.docs.reader import read_page
from tests.support.rules import rule
from tests.support.wait import eventually

PAGE = read_page("drain-endpoint.md")
Connection = psycopg.Connection[TupleRow]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.system
@rule("M80")
def test_the_endpoint_of_the_page_drains_when_the_page_s_command_asks(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(blocks("python")[0])
    secret = "a-secret-of-some-length"
    environment = {**os.environ, "ROTA_DATABASE_URL": database, "TICK_SECRET": secret}
    log = tmp_path / "log"
    command = [sys.executable, "-m", "uvicorn", "shop:tick", "--port", "0"]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=file, stderr=file
        ) as process,
    ):
        try:
            found = eventually(lambda: re.search(r"http://127.0.0.1:\d+", log.read_text()))
            assert found is not None
            [curl] = blocks("sh")
            done = subprocess.run(
                ["sh", "-c", curl.replace("http://127.0.0.1:8000", found[0])],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            process.terminate()
    assert '"state":"done"' in done.stdout, done


@rule("M80")
def test_the_wsgi_blocks_of_the_page_drain(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setenv("TICK_SECRET", "a-secret-of-some-length")
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)  # the page is ours
    connection.execute(
        "insert into rota.job (job_type, payload) values ('greet', '{\"name\": \"A\"}')"
    )
    client = names["site"].test_client()
    allowed = {"Authorization": "Bearer a-secret-of-some-length"}
    assert client.post("/tick").status_code == 401
    assert client.post("/tick", headers=allowed).json["succeeded"] == 1
    assert names["tick_view"].csrf_exempt  # tests/api/test_wsgi.py asks one like it over HTTP
    names["app"].close()
