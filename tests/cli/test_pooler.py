"""Every command behind PgBouncer in transaction mode, with and without an App."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli import run
from tests.support.pooler import Pooler, program
from tests.support.project import enter
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        program() is None,
        reason="PGBOUNCER IS NOT INSTALLED: no command was tried behind a transaction pooler",
    ),
]

SHOP = """
import rota

app = rota.App({url!r}, release="shop-1", notify=False)


@app.job("send_mail", max_attempts=1)
def send_mail(user: int) -> None:
    raise ValueError("no such user")
"""
MAIL = ["--type", "send_mail", "--yes"]
COMMANDS = (
    ["sync"], ["migrate", "--check"],
    ["enqueue", "send_mail", "--payload", '{"user": 1}'],
    ["enqueue", "send_mail", "--payload", '{"user": 2}'], ["work", "--drain"], ["jobs"],
    ["retry", *MAIL], ["discard", *MAIL], ["archive", *MAIL, "--why", "x"],
    ["retry", "--again", *MAIL, "--status", "dead"],
    ["cancel", *MAIL],
    ["schedules"], ["schedules", "put", "nightly", "send_mail", "--payload", '{"user": 1}'],
    ["schedules", "trigger", "nightly"],
    ["schedules", "delete", "nightly"],
    ["queues", "pause", "--all"], ["queues", "resume", "--all"],
    ["stats"], ["queues"], ["workers"], ["types"],
    ["alerts"], ["check"], ["top", "--once"],
    ["top", "--json"],
)  # fmt: skip


@pytest.fixture
def pooled(
    server: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of the test's database by way of the pooler, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("ROTA_DATABASE_URL", "ROTA_APP", "ROTA_SCHEMA"):
        monkeypatch.delenv(name, raising=False)
    with Pooler(server, tmp_path / "pgbouncer.log") as pooler:
        yield pooler.url(database.rpartition("/")[2])


@rule("M3", "M86")
def test_every_command_connects_as_its_app_says(
    pooled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pooled_shop.py").write_text(SHOP.format(url=pooled))
    enter(Path.cwd(), monkeypatch)
    monkeypatch.setenv("ROTA_APP", "pooled_shop:app")
    ended = [(run(command), capsys.readouterr().err) for command in COMMANDS]
    assert [
        (command, *end) for command, end in zip(COMMANDS, ended, strict=True) if end[0] != 0
    ] == []
    # Without an App a command finds out that it stands before a pooler.
    monkeypatch.delenv("ROTA_APP")
    for command in (["check"], ["queues", "pause", "email", "--force"], ["stats"]):
        assert run([*command, "--url", pooled]) == 0
    assert "pooler" not in capsys.readouterr().err
