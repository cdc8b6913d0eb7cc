"""pgbouncer.md: its blocks work behind PgBouncer, and without the setting they are refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.docs.reader import read_page
from tests.docs.shop import Shop
from tests.support.pooler import Pooler, program
from tests.support.rules import rule
from tests.support.server import PostgresServer

PAGE = read_page("pgbouncer.md")
[DECLARING] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[COMMANDS] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
[TIMEOUTS] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
MAIL = "\n\n@app.job\ndef mail(user_id: int) -> None: ...\n"
Connection = psycopg.Connection[TupleRow]


@pytest.mark.system
@pytest.mark.skipif(
    program() is None, reason="PGBOUNCER IS NOT INSTALLED: the page was not tried behind it"
)
@rule("M3")
def test_the_commands_of_the_page_work_past_the_pooler_and_behind_it(
    server: PostgresServer, empty_database: str, place: Path, tmp_path: Path
) -> None:
    shop = Shop(place, None)
    (place / "shop.py").write_text(DECLARING + MAIL)
    shop.environment["ROTA_APP"] = "shop:app"
    with Pooler(server, tmp_path / "pgbouncer.log") as pooler:
        shop.environment["DIRECT"] = empty_database
        shop.environment["POOLER"] = pooler.url(empty_database.rpartition("/")[2])
        migrate, work, doctor = (line.split("  #")[0].strip() for line in COMMANDS.splitlines())
        shop.type(migrate)
        shop.type('ROTA_DATABASE_URL="$POOLER" rota enqueue mail --payload \'{"user_id": 1}\'')
        assert "succeeded 1" in shop.type(work)
        found = _ask(shop, f"{doctor} --all")
        assert "a transaction pooler, and the App has notify=False" in found
        (place / "shop.py").write_text(DECLARING.replace("notify=False", "") + MAIL)
        assert "use App(notify=False)" in _ask(shop, f"{doctor} --all")


def _ask(shop: Shop, line: str) -> str:
    """What a command prints, whatever its status; the tests' server has autovacuum off."""
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=shop.place,
        env=shop.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return " ".join((done.stdout + done.stderr).split())


def test_the_timeouts_of_the_page_hold_for_each_session_of_the_role(
    server: PostgresServer, admin: Connection
) -> None:
    role = f"my_worker_{uuid4().hex[:8]}"
    admin.execute(f"create role {role} login".encode())
    try:
        admin.execute(TIMEOUTS.replace("my_worker", role).encode())
        url = psycopg.conninfo.make_conninfo(server.url(), user=role)
        with psycopg.connect(url) as session:
            shown = [
                session.execute(f"show {name}".encode()).fetchone()
                for name in ("lock_timeout", "statement_timeout")
            ]
        assert shown == [("10s",), ("30s",)]
    finally:
        admin.execute(f"drop role {role}".encode())
