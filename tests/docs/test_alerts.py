"""The blocks of alerts.md and asgi.md do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.store import ops
from tests.docs.reader import read_page
from tests.store.work import Hand
from tests.support import forked
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.support.web import serving

ALERTS, ASGI = read_page("alerts.md"), read_page("asgi.md")
Connection = psycopg.Connection[TupleRow]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@rule("M86")
def test_the_table_of_the_rules_is_what_the_schema_comes_with(connection: Connection) -> None:
    written = re.findall(
        r"^\| `([\w ]+)` \| `(\w+)` \|.*\| (critical|warning(?:, from \d+ critical)?) \|$",
        ALERTS,
        re.MULTILINE,
    )
    assert (
        sorted(written)
        == connection.execute(
            "select name, kind, concat(severity, ', from ' || critical_from || ' critical') "
            "from rota.alert_rule order by name"
        ).fetchall()
    )
    columns = [
        name
        for (name,) in connection.execute(
            "select attname from pg_attribute where attrelid = 'rota.alert_rule'::regclass "
            "and attnum > 0"
        )
    ]
    described = re.findall(r"^\| `(\w+)` \| [^|]+\|[^|]*\|$", ALERTS, re.MULTILINE)
    assert set(described) == set(columns) - {"kind", "due_at"}


@rule("M86", "M15")
def test_every_sql_block_of_the_page_runs(connection: Connection) -> None:
    role = f"my_monitor_{uuid4().hex[:8]}"
    try:
        for block in blocks(ALERTS, "sql"):
            for statement in re.sub(r"--.*", "", block).replace("my_monitor", role).split(";"):
                if statement.strip():
                    done = connection.execute(statement.encode())
                    assert done.statusmessage is not None and done.statusmessage not in (
                        "UPDATE 0",
                        "INSERT 0 0",
                    ), statement
    finally:
        connection.execute(f"drop owned by {role}; drop role {role}".encode())


@rule("M86")
def test_the_handler_and_the_json_of_the_page_are_what_comes(
    database: str, connection: Connection
) -> None:
    import msgspec

    import rota

    [said] = blocks(ALERTS, "json")
    told = msgspec.json.decode(said, type=ops.alert.AlertMessage)
    assert msgspec.json.decode(said).keys() == set(told.__struct_fields__)

    sent: list[tuple[str, str, str]] = []
    app = rota.App(database)
    [handler] = blocks(ALERTS, "python")
    exec(handler, {"app": app, "send_mail": lambda *mail: sent.append(mail)})
    connection.execute(blocks(ALERTS, "sql")[1].encode())
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, failed_at) "
        "select 't', 'default', 0, 'dead', rota.clock()"
        " from generate_series(1, 10)"
    )
    app.drain()
    app.drain()
    assert [(to, subject) for to, subject, _ in sent] == [
        ("ops@example.com", "critical: dead jobs fires")
    ]
    assert Hand(connection).run(ops.find_alert_matches("dead jobs")) != []


@pytest.mark.system
@rule("M86")
def test_the_commands_and_the_crontab_lines_of_the_page_work(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(blocks(ASGI, "python")[0].split("tick =")[0])
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    [commands] = blocks(ALERTS, "sh")
    ran = [_typed(tmp_path, line.partition("#")[0], database) for line in commands.splitlines()]
    assert [one.returncode for one in ran] == [0, 0, 0], ran
    assert ran[0].stdout.startswith(re.findall(r"# (OK.*=0) …", commands)[0])

    cron, drain = (
        line.split(maxsplit=5)[5]
        for block in blocks(ALERTS, "text")
        for line in block.splitlines()
        if "* * *" in line
    )
    assert _typed(tmp_path, cron, database).stdout == ""
    rota.ok("work", "--app", "shop:app", "--drain")
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into rota.job (job_type, queue, priority, status, failed_at) "
            "values ('t', 'default', 0, 'dead', rota.clock())"
        )
    assert _typed(tmp_path, cron, database).stdout.startswith("WARNING - dead jobs: 1 job died")
    with serving() as web:
        assert (
            _typed(
                tmp_path, drain.replace("https://hc.example/the-check", web.url), database
            ).returncode
            == 0
        )
        assert len(web.asked) == 1


@pytest.mark.system
@rule("M80")
def test_the_endpoint_of_the_page_drains_when_the_page_s_command_asks(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(blocks(ASGI, "python")[0])
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
            [curl] = blocks(ASGI, "sh")
            done = _typed(
                tmp_path,
                curl.replace("http://127.0.0.1:8000", found[0]),
                database,
                TICK_SECRET=secret,
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
    for block in blocks(ASGI, "python"):
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


def _typed(
    place: Path, line: str, database: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell would, `rota` being ours."""
    forked.write_rota(place)
    path = f"{place}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ROTA_DATABASE_URL": database, **environment}
    return subprocess.run(
        ["sh", "-c", line],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
