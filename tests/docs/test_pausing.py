"""The blocks of pausing.md and failover-and-restore.md do what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg
import psycopg.conninfo
import pytest

import rota
from tests.docs.reader import read_page
from tests.store.test_copy import made
from tests.support import forked
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port

PAGE, RESTORING = read_page("pausing.md"), read_page("failover-and-restore.md")
SHOP = "import rota\n\napp = rota.App()\n\n\n@app.job('mail')\ndef mail() -> None: ...\n"


@rule("M87")
@pytest.mark.slow
@pytest.mark.system
def test_every_shell_line_of_the_pages_does_what_it_says(
    server: PostgresServer, database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    forked.write_rota(tmp_path)
    with psycopg.connect(database, autocommit=True) as own:
        own.execute("insert into rota.job (job_type) values ('mail')")
    with made(server) as name:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{server.program('psql').parent}:{os.environ['PATH']}",
            "ROTA_APP": "shop:app",
            "ROTA_DATABASE_URL": database,
            "PRODUCTION": database,
            "STAGING": server.url(name),
            "RESTORED": database,
        }
        said = {}
        for line in [
            line
            for block in re.findall(r"```sh\n(.*?)```", PAGE + RESTORING, re.DOTALL)
            for line in block.splitlines()
        ]:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == (6 if line.endswith("# exit status 6") else 0), (
                f"{line}\n{done.stdout}{done.stderr}"
            )
            said[line] = done.stdout
        assert "the provider is down" in next(
            out for line, out in said.items() if line.startswith("rota queues")
        )
        with psycopg.connect(server.url(name), autocommit=True) as copy:
            assert copy.execute(
                "select rota.installation_paused() is null, (select count(*) from rota.job)"
            ).fetchone() == (True, 1)


@rule("M2")
@pytest.mark.system
def test_the_url_of_the_page_finds_the_server_that_can_write(
    server: PostgresServer, database: str
) -> None:
    [line] = re.findall(r"```env\nROTA_DATABASE_URL='(.*)'\n```", RESTORING)
    found = psycopg.conninfo.conninfo_to_dict(database)
    absent = unused_port()
    url = line.replace(
        "shop@db1,db2/shop",
        f"{found['user']}@127.0.0.1:{absent},127.0.0.1:{server.port}/{found['dbname']}",
    )
    assert url != line
    app = rota.App(url)
    app.queues.pause_all()
    app.close()
    with psycopg.connect(database) as own:
        assert own.execute("select paused_at is not null from rota.installation").fetchone() == (
            True,
        )


@rule("M87")
def test_every_python_block_of_the_page_holds(database: str) -> None:
    app = rota.App(database)
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, {"app": app})  # the page is ours
    app.close()
