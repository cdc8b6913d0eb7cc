"""The pages of webhooks: their code sends, receives and replays events, and their tables are the
rules."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.test import RequestFactory
from fastapi.testclient import TestClient
from psycopg.rows import TupleRow

import rota
from rota.kinds import WEBHOOK, webhook
from rota.kinds.webhook import client as clients
from tests.docs.reader import read_page
from tests.support.cli import CommandLine
from tests.support.django_site import django_database
from tests.support.receiver import receiving
from tests.support.rules import rule

PAGE = "".join(map(read_page, ["webhooks.md", "webhook-endpoints.md", "receive-webhooks.md"]))
SHOP, QUEUE, ENDPOINTS, FASTAPI, FLASK, DJANGO = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.partition("  #")[0].split()
    for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in text.splitlines()
]


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
    connection.execute("create table payment (order_id int)")
    names: dict[str, Any] = {}
    exec(compile(SHOP, "webhooks.md", "exec"), names)
    app, hooks = names["app"], names["hooks"]
    commands = [[part.strip("'\"") for part in one[1:]] for one in COMMANDS if one[0] == "rota"]
    migrate, put, *others = commands
    command.ok(*migrate)
    assert command.ok(*put).out.startswith("whsec_")
    with receiving() as receiver:
        hooks.put("crm", receiver.url("/crm"), allow_private=True)
        with connection.transaction():
            names["pay"](connection, 17)
        assert app.drain().succeeded == 1
        assert receiver.requests[0].headers["webhook-id"] == "order:17:paid"
        exec(ENDPOINTS, names)
        assert "erp on https://erp.example/in None" in capsys.readouterr().out
        for one in others:
            if one[:2] != ["webhook", "disable"] and one[0] != "work":
                command.ok(*one)
    assert "replay" in CommandLine(tmp_path).ok("webhook", "--help", "--app", "shop_hooks:app").out
    command.ok("webhook", "disable", "crm", "--why", "they asked")
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
    assert {job.result for job in app.find()} == {"order.paid: order 17"}
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
