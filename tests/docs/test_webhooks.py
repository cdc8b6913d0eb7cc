"""The pages of webhooks: their code sends, receives and replays events, and their tables are the
rules."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.test import RequestFactory
from fastapi.testclient import TestClient
from psycopg.rows import TupleRow

import rota
from rota.kinds import WEBHOOK, webhook
from rota.kinds.webhook import client as clients
from tests.docs.reader import Reader, read_page
from tests.support.cli import CommandLine
from tests.support.django_site import django_database
from tests.support.receiver import receiving
from tests.support.rules import rule
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

PAGE = "".join(map(read_page, ["webhooks.md", "webhook-endpoints.md", "receive-webhooks.md"]))
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOP, _, QUEUE, ENDPOINTS, FASTAPI, FLASK, DJANGO = BLOCKS
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in re.findall(r"^rota webhook .*", read_page("webhook-endpoints.md"), re.MULTILINE)
]


@pytest.mark.system
@pytest.mark.slow
@rule("M71")
def test_a_reader_of_the_page_sees_an_event_arrive_and_verified(
    tmp_path: Path, server: PostgresServer, empty_database: str
) -> None:
    shown = read_page("webhooks.md").partition("## Emit an event")[0]
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        reader.follow(shown.replace("8000", str(unused_port())))
        [log] = tmp_path.glob("*.log")
        eventually(lambda: log.read_text().count("verified: ") == 2)
        assert "verified: order.paid {'order': 17}" in log.read_text()
        assert "refused" not in log.read_text()


@pytest.mark.system
@pytest.mark.slow
@rule("M71")
def test_a_reader_who_receives_runs_a_job_for_each_event(
    tmp_path: Path, server: PostgresServer, empty_database: str
) -> None:
    shown = read_page("receive-webhooks.md").partition("In Flask")[0]
    secret, body = "whsec_" + "A" * 43 + "=", b'{"type":"test","data":{}}'
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment |= {"ROTA_DATABASE_URL": empty_database, "WEBHOOK_SECRET": secret}
        reader.follow(shown)
        headers = webhook.sign([secret], "1", body, int(time.time()))
        url = f"http://127.0.0.1:{reader.environment['UVICORN_PORT']}/hooks"
        assert httpx.post(url, content=body, headers=headers).status_code == 200
        eventually(lambda: '"ignored: test"' in reader.type("rota job 1"))


@rule("M71")
def test_the_code_of_the_page_emits_an_event_and_its_commands_run(
    database: str,
    connection: psycopg.Connection[TupleRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "shop_hooks.py").write_text(SHOP)
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database, ROTA_APP="shop_hooks:app")
    command.ok("migrate")
    connection.execute("create table payment (order_id int)")
    names: dict[str, Any] = {}
    exec(compile(SHOP, "webhooks.md", "exec"), names)
    app, hooks = names["app"], names["hooks"]
    with receiving() as receiver:
        hooks.put("crm", receiver.url("/crm"), allow_private=True)
        with connection.transaction():
            names["pay"](connection, 17)
        assert app.drain().succeeded == 1
        assert receiver.requests[0].headers["webhook-id"] == "order:17:paid"
        exec(ENDPOINTS, names)
        assert "erp on https://erp.example/in None" in capsys.readouterr().out
        assert [one[1] for one in COMMANDS] == ["list", "deliveries", "replay", "disable"]
        for one in COMMANDS:
            command.ok(*one)
    assert "replay" in CommandLine(tmp_path).ok("webhook", "--help", "--app", "shop_hooks:app").out
    assert hooks.endpoints()[0].why == "they asked"
    app.close()


@rule("M51", "M71")
def test_the_receivers_of_the_page_take_what_is_signed_once_and_nothing_else(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "whsec_" + "A" * 43 + "="
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setenv("WEBHOOK_SECRET", secret)
    names: dict[str, Any] = {}
    for text in (FASTAPI, FLASK, DJANGO):
        exec(compile(text, "receive-webhooks.md", "exec", dont_inherit=True), names)
    fastapi, flask = TestClient(names["receiver"]), names["flask_app"].test_client()
    body = b'{"type":"order.paid","data":{"order":17}}'
    with django_database(database):

        def post(id: str) -> Iterator[tuple[bytes, int]]:
            """Each body that is sent to each receiver, with the status of the response."""
            headers = webhook.sign([secret], id, body, int(time.time()))
            for sent in (body, body, body + b" "):
                yield sent, fastapi.post("/hooks", content=sent, headers=headers).status_code
                yield sent, flask.post("/hooks", data=sent, headers=headers).status_code
                given: Any = {"content_type": "application/json", "headers": headers}
                request = RequestFactory().post("/hooks", sent, **given)
                yield sent, names["django_hook"](request).status_code

        for id_ in ("1", "2"):
            assert {(sent == body, code) for sent, code in post(id_)} == {(True, 200), (False, 400)}
    app: rota.App = names["app"]
    assert app.drain().succeeded == 2
    assert {job.result for job in app.find()} == {"order 17 is paid"}
    assert {job.idempotency_key for job in app.find()} == {"1", "2"}
    app.close()


def test_the_tables_of_the_page_are_the_rules() -> None:
    hooks = webhook.Webhooks()
    for name, capacity in (("webhook", 4), ("webhook.ordered", 1)):
        declared: Any = hooks.jobs.types[name]
        options = declared._declaration.options
        assert options.group_capacity == capacity
        assert options.max_attempts == WEBHOOK["max_attempts"] == 8
    assert "| delays | 5 s, 5 m, 30 m, 2 h, 5 h, 10 h, 10 h: about 27 hours |" in PAGE
    assert WEBHOOK["retry"] == rota.Delays("5s", "5m", "30m", "2h", "5h", "10h", "10h")
    assert (clients.TOTAL_S, clients.BODY_BYTES_MAX) == (10.0, 16 * 1024)
    assert "10 s in all; 16 kB of the response" in PAGE
    breaker = rota.Breaker("x")
    assert (breaker.failures, breaker.within) == (5, "1m")


def test_webhooks_have_a_queue_of_their_own(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    names: dict[str, Any] = {"webhook": webhook}
    exec(compile(QUEUE, "webhooks.md", "exec"), names)
    app = rota.App(database, jobs=[names["hooks"].jobs])
    app.migrate()
    app.sync()
    names["hooks"].put("crm", "https://a.example/")
    names["hooks"].emit("x", event_id="1")
    assert connection.execute("select queue from rota.job").fetchall() == [("webhooks",)]
    app.close()
