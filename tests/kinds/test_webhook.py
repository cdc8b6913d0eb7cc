"""Webhooks to a real receiver: each endpoint once, each answer as the rules say."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

import rota
from rota.kinds import webhook
from rota.kinds.webhook import client as clients
from tests.kinds.conftest import Connection, drain
from tests.support.cli import CommandLine
from tests.support.receiver import Receiver, receiving
from tests.support.rules import rule

Make = Callable[..., tuple[rota.App, webhook.Webhooks]]


def put(
    hooks: webhook.Webhooks, receiver: Receiver, name: str = "crm", path: str = "/", **more: Any
) -> str:
    given = {"allow_private": True, **more}
    return hooks.put(name, receiver.url(path), **given) or ""


def put_all(hooks: webhook.Webhooks, receiver: Receiver, *paths: str) -> None:
    """Put an endpoint for each path, which is named as it is."""
    for path in paths:
        put(hooks, receiver, path.replace("/", "-")[1:], path)


@rule("M71")
def test_each_endpoint_that_asks_for_it_gets_an_event_once_and_signed(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    secret = put(hooks, receiver, "crm", "/crm", events=["order.*"])
    put(hooks, receiver, "all", "/all")
    put(hooks, receiver, "other", "/other", events=["invoice.*", "ordering"])
    put(hooks, receiver, "theirs", "/theirs", account="42")
    with connection.transaction():
        made = hooks.emit("order.paid", {"order": 17}, event_id="order:17", connection=connection)
        assert sorted(made) == ["all", "crm"]
        again = hooks.emit("order.paid", {"order": 17}, event_id="order:17", connection=connection)
        assert again == {}
    assert app.drain().succeeded == 2
    [taken] = receiver.of("/crm")
    assert json.loads(taken.body)["data"] == {"order": 17}
    assert taken.headers["webhook-id"] == "order:17"
    verified = webhook.verify(taken.headers, taken.body, secret)
    assert verified == Webhook(secret).verify(taken.body.decode(), taken.headers)
    assert verified["type"] == "order.paid"
    [delivery] = hooks.deliveries("crm")
    assert (delivery.event, delivery.event_id) == ("order.paid", "order:17")
    assert (delivery.status, delivery.code, delivery.response) == ("succeeded", 200, "thanks")
    assert len(receiver.requests) == 2


@rule("M45", "M71")
def test_an_event_that_was_erased_is_found_nowhere_and_not_delivered_again(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver)
    event = {"who": "ada@planted"}
    hooks.emit("user.left", event, event_id="user:ada@planted")
    assert app.drain().succeeded == 1
    assert app.jobs.erase({"data": event}, why="she asked").jobs == 1
    for table in ("jobs", "webhook_delivery", "action", "attempt"):
        query = f"select from rota.{table} t where t::text like '%planted%'"
        assert connection.execute(query.encode()).fetchall() == []
    assert hooks.emit("user.left", event, event_id="user:ada@planted") == {}
    with pytest.raises(rota.UsageError, match="cannot be sent again"):
        hooks.replay("crm", event_id=hooks.deliveries("crm")[0].event_id)
    assert len(receiver.requests) == 1


@rule("M71", "M63")
def test_a_kept_connection_that_has_ended_costs_no_attempt(make: Make, receiver: Receiver) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/limited")
    for n in range(9):
        hooks.emit("x", event_id=str(n))
    assert app.drain(concurrency=1).succeeded == 9
    assert len(receiver.of("/limited")) == 9 and receiver.connections < 9


@rule("M20")
def test_an_event_that_is_rolled_back_goes_nowhere(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver)
    with connection.transaction(force_rollback=True):
        hooks.emit("order.paid", event_id="1", connection=connection)
    assert app.find() == []
    assert hooks.emit("order.paid", event_id="1") != {}


@rule("M71")
def test_events_of_an_account_are_for_its_endpoints_alone(make: Make, receiver: Receiver) -> None:
    _, hooks = make()
    put(hooks, receiver, "mine")
    put(hooks, receiver, "a", account="A")
    put(hooks, receiver, "b", account="B")
    assert list(hooks.emit("x", event_id="1", account="A")) == ["a"]
    assert list(hooks.emit("x", event_id="1")) == ["mine"]
    assert [endpoint.name for endpoint in hooks.endpoints(account="B")] == ["b"]


ANSWERS: list[tuple[str, str, int | None, str | None]] = [
    # Where to; the status then; the code, and a text of the error or of the response.
    ("/500", "failed", 500, "responded with 500 after"),
    ("/408", "failed", 408, "responded with 408"),
    ("/425", "failed", 425, "responded with 425"),
    ("/busy", "failed", 503, "later"),
    ("/busy-until", "failed", 429, "later"),
    ("/drop", "failed", None, "RemoteProtocolError"),
    ("/redirect", "dead", 302, "it leads to http"),
    ("/304", "dead", 304, "responded with 304"),
    ("/400", "dead", 400, "thanks"),
    ("/422", "dead", 422, "responded with 422"),
    ("/451", "dead", 451, "responded with 451"),
    *((f"/{code}", "failed", code, "responded with") for code in (401, 403, 404, 409, 423)),
    ("/204", "succeeded", 204, None),
    ("/cut", "succeeded", 200, None),
    ("/endless", "succeeded", 200, None),
    ("/bomb", "succeeded", 200, "of gzip"),
]


@pytest.mark.nightly
@rule("M71")
def test_each_answer_is_judged(make: Make, receiver: Receiver, connection: Connection) -> None:
    app, hooks = make()
    with receiving() as bare, receiving() as other:
        # They have a body where HTTP has none: it would be the next answer of their connection.
        servers = {"/304": bare, "/204": other}
        for path, *_ in ANSWERS:
            put_all(hooks, servers.get(path, receiver), path)
        made = hooks.emit("x", event_id="1")
        app.drain()
    for path, status, code, text in ANSWERS:
        name = path.replace("/", "-")[1:]
        [delivery] = hooks.deliveries(name)
        assert (delivery.status, delivery.code) == (status, code), path
        assert delivery.response is not None and len(delivery.response) < 500
        assert delivery.seconds is None or delivery.seconds < clients.TOTAL_S - 1, "read to its end"
        asked = "select last_error, run_at - failed_at from rota.jobs where id = %s"
        found = connection.execute(asked, [made[name]]).fetchone()
        assert found is not None
        assert text is None or text in f"{found[0]} {delivery.response}", path
        waits = {"/busy": 119, "/busy-until": 250}.get(path, 0)
        assert not waits or found[1].total_seconds() >= waits, path
        assert len(servers.get(path, receiver).of(path)) <= 2, (
            path
        )  # once more if the connection was a kept one
    assert receiver.of("/secret") == []


@rule("M71")
def test_no_request_takes_longer_than_its_time(
    make: Make, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TOTAL_S", 5)
    app, hooks = make()
    put_all(hooks, receiver, "/hang", "/drip-headers", "/drip")
    hooks.emit("x", event_id="1")
    app.drain()
    for name, status, text in (
        ("hang", "failed", "did not respond within"),
        ("drip-headers", "failed", "did not respond within"),
        ("drip", "succeeded", ""),
    ):
        [delivery] = hooks.deliveries(name)
        assert delivery.status == status and text in str(delivery.response), delivery


@rule("M71")
def test_a_failed_delivery_comes_again_with_the_same_id(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/flaky")
    receiver.codes["/flaky"] = [500, 200]
    hooks.emit("x", event_id="1")
    app.drain()
    assert hooks.endpoints()[0].state == "failing"
    drain(app, connection)
    assert [request.headers["webhook-id"] for request in receiver.requests] == ["1", "1"]
    [delivery] = hooks.deliveries("crm")
    assert (delivery.status, delivery.attempts, delivery.code) == ("succeeded", 2, 200)
    assert hooks.endpoints()[0].state == "on"


@rule("M71")
def test_what_a_deploy_may_say_is_retried_also_after_an_outage_and_then_the_event_is_dead(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, "back", "/flaky")
    put(hooks, receiver, "gone", "/404")
    receiver.codes["/flaky"] = [500, 500, 401, 403, 404, 409, 423]
    hooks.emit("x", event_id="1")
    for _ in range(9):
        drain(app, connection)
    ends = [hooks.deliveries(name)[0] for name in ("back", "gone")]
    assert [delivery[3:6] for delivery in ends] == [("succeeded", 8, 200), ("dead", 8, 404)]
    assert "responded with 404" in str(ends[1].response)


@rule("M71")
def test_the_old_secret_signs_beside_the_new_one_also_where_an_answer_was_lost(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    secrets = [put(hooks, receiver), *(hooks.rotate("crm") for _ in range(9))]
    with pytest.raises(rota.UsageError, match="ten secrets that sign"):
        hooks.rotate("crm")
    hooks.emit("x", event_id="1")
    app.drain()
    connection.execute(
        "update rota.webhook_endpoint set sealed = jsonb_set(sealed, '{-1,until}', to_jsonb(now()))"
    )
    hooks.emit("x", event_id="2")
    app.drain()
    newest = hooks.rotate("crm", keep="0s")
    hooks.emit("x", event_id="3")
    app.drain()
    for request, signing in zip(receiver.requests, (secrets, secrets[1:], [newest]), strict=True):
        for secret in (*secrets, newest):
            if secret in signing:
                webhook.verify(request.headers, request.body, secret)
            else:
                with pytest.raises(webhook.NotVerified, match="no signature fits"):
                    webhook.verify(request.headers, request.body, secret)


@pytest.mark.nightly
@rule("M71")
def test_an_endpoint_that_is_gone_is_disabled_until_a_person_enables_it(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/gone")
    receiver.codes["/gone"] = [410]
    hooks.emit("x", event_id="1")
    hooks.emit("x", event_id="2")
    app.drain(concurrency=1)
    [endpoint] = hooks.endpoints()
    assert (endpoint.state, endpoint.by) == ("disabled", "rota")
    assert "410" in str(endpoint.why)
    assert len(receiver.requests) == 1
    assert [delivery.status for delivery in hooks.deliveries("crm")] == ["dead", "dead"]
    assert hooks.emit("x", event_id="3") == {}
    found = connection.execute("select subject, message from rota.alert_matches('packages')")
    [(subject, message)] = found.fetchall()
    assert subject == "webhook crm"
    assert "410" in message
    hooks.enable("crm", why="they are back")
    assert hooks.replay("crm", since="1h") == 2
    assert app.drain().succeeded == 2
    assert [delivery.status for delivery in hooks.deliveries("crm")] == ["succeeded", "succeeded"]
    assert connection.execute("select count(*) from rota.package_findings()").fetchone() == (0,)


NOTES: list[tuple[str, int, str, str, bool, str]] = [
    # How long it has failed, and how often; what it says now; at which URL; whether that is that it
    # is gone; its state then.
    ("5 days", 19, "500", "https://a.example/", False, "disabled"),
    ("5 days", 18, "500", "https://a.example/", False, "failing"),
    ("4 days", 99, "500", "https://a.example/", False, "failing"),
    ("1 min", 1, "410", "https://a.example/", True, "disabled"),
    ("5 days", 99, "410", "https://old.example/", True, "failing"),
    ("5 days", 99, "200", "https://a.example/", False, "on"),
]


@rule("M71")
def test_five_days_of_nothing_but_failures_disable_an_endpoint(
    make: Make, connection: Connection
) -> None:
    _, hooks = make()
    hooks.put("crm", "https://a.example/")
    set_failures = (
        "update rota.webhook_endpoint set failing_since = now() - %s::interval, failures = %s"
    )
    note = "select * from rota.webhook_note(1, %s, %s, %s, %s)"
    for since, failures, said, url, is_gone, state in NOTES:
        connection.execute(set_failures, [since, failures])
        with connection.transaction(force_rollback=True):
            why = connection.execute(note, [url, said == "200", is_gone, said]).fetchall()
            found = connection.execute("select state, why from rota.webhook_endpoints()").fetchone()
        assert found is not None and found[0] == state, (since, failures, said, url)
        assert [found[1:]] == (why if state == "disabled" else [(None,)])
    hooks.put("crm", "https://b.example/")
    assert (hooks.endpoints()[0].failures, hooks.endpoints()[0].state) == (0, "on")


@pytest.mark.nightly
@rule("M71")
def test_a_paused_endpoint_waits_and_a_removed_one_is_forgotten(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver)
    hooks.pause("crm", why="they move")
    hooks.emit("x", event_id="1")
    drain(app, connection)
    app.breakers.reset("webhook")  # it is what holds them, but not alone
    drain(app, connection)
    [delivery] = hooks.deliveries("crm")
    assert (delivery.status, delivery.attempts, receiver.requests) == ("queued", 0, [])
    assert hooks.endpoints()[0].state == "paused"
    hooks.enable("crm")
    drain(app, connection)
    assert len(receiver.requests) == 1
    hooks.emit("x", event_id="2")
    hooks.remove("crm")
    drain(app, connection)
    assert len(receiver.requests) == 1
    found = connection.execute(
        "select status from rota.jobs where job_type = 'webhook' order by id"
    )
    assert found.fetchall() == [("succeeded",), ("cancelled",)]
    with pytest.raises(rota.UsageError, match="no endpoint 'crm'"):
        hooks.pause("crm")


@pytest.mark.nightly
@rule("M71")
def test_an_endpoint_in_order_gets_an_event_after_the_one_before(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/flaky", in_order=True)
    receiver.codes["/flaky"] = [500]
    for number in range(4):
        hooks.emit("x", event_id=f"{number}")
    drain(app, connection)
    assert [sent.headers["webhook-id"] for sent in receiver.requests] == ["0"]
    drain(app, connection)
    assert [sent.headers["webhook-id"] for sent in receiver.requests] == ["0", "0", "1", "2", "3"]


def test_a_body_is_built_when_it_is_sent_and_a_test_event_goes_to_one_endpoint(
    make: Make, receiver: Receiver
) -> None:
    wrong: dict[str, Any] = {"none": object(), "long": "y" * 2_000_000}
    app, hooks = make(load=lambda event, data: {**data, "event": event, "x": wrong.get(event)})
    put(hooks, receiver, "crm", "/crm", events=["order.*"])
    put(hooks, receiver, "wrong", "/wrong", events=["none", "long"])
    hooks.emit("order.paid", {"order": 17}, event_id="1")
    hooks.emit("none", event_id="2")
    hooks.emit("long", event_id="3")
    hooks.test("crm")
    app.drain()
    bodies = [json.loads(request.body) for request in receiver.of("/crm")]
    sent = {body["type"]: body["data"] for body in bodies}
    assert len(bodies) == 2 and sent.keys() == {"order.paid", "test"}
    assert sent["order.paid"] == {"order": 17, "event": "order.paid", "x": None}
    assert receiver.of("/wrong") == [], "the one is no JSON, and the other too large"
    refused = hooks.deliveries("wrong")
    assert [delivery.status for delivery in refused] == ["dead", "dead"]
    assert all("load returned" in str(delivery.response) for delivery in refused)
    with pytest.raises(rota.UsageError, match="no endpoint 'none'"):
        hooks.test("none")


def test_an_event_that_cannot_be_one_is_refused_and_the_transaction_goes_on(
    make: Make, connection: Connection
) -> None:
    _, hooks = make()
    for change, text in (
        ({"event": "order paid"}, "event has words"),
        ({"event": "x" * 101}, "event has words"),
        ({"event_id": "a b"}, "event_id has"),
        ({"event_id": ""}, "event_id has"),
        ({"account": ""}, "account has"),
        ({"data": {"x": float("nan")}}, "data"),
        ({"data": {"x": object()}}, "data"),
        ({"data": {"x": "\0"}}, "data"),
    ):
        given: dict[str, Any] = {"event": "x", "event_id": "1", **change}
        with connection.transaction():
            with pytest.raises((rota.UsageError, rota.PayloadError), match=text):
                hooks.emit(connection=connection, **given)
            assert connection.execute("select 1").fetchone() == (1,)


@rule("M71")
def test_an_endpoint_is_changed_and_keeps_its_secret_and_on_its_host_its_rights(
    make: Make,
) -> None:
    _, hooks = make()
    secret = hooks.put("crm", "http://10.0.0.1/a", events=["order.*"], allow_private=True)
    assert secret is not None
    assert hooks.put("crm", "http://10.0.0.1/b") is None
    [endpoint] = hooks.endpoints()
    assert (endpoint.url, endpoint.events) == ("http://10.0.0.1/b", ["order.*"])
    assert endpoint.allow_private is True
    with pytest.raises(rota.UsageError, match="another account"):
        hooks.put("crm", "http://10.0.0.1/b", account="42")
    hooks.put("crm", "http://10.0.0.2/b")
    assert hooks.endpoints()[0].allow_private is False, "it may be another network"
    hooks.put("crm", "http://10.0.0.2/b", allow_private=True)
    hooks.put("crm", "http://10.0.0.2/b", allow_private=False)
    assert hooks.endpoints()[0].allow_private is False


def test_old_deliveries_are_forgotten(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver)
    hooks.emit("x", event_id="1")
    hooks.emit("x", event_id="2")
    connection.execute(
        "update rota.webhook_delivery set created_at = now() - interval '91 days' "
        "where event_id = '1'"
    )
    app.enqueue("webhook.forget", {})
    app.drain()
    assert [delivery.event_id for delivery in hooks.deliveries("crm")] == ["2"]


@pytest.mark.nightly
@rule("M45")
def test_secrets_of_endpoints_are_sealed_where_there_are_keys_and_rotated_with_them(
    make: Make, receiver: Receiver, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, hooks = make()
    clear = put(hooks, receiver, "clear")
    old_key, new_key = (
        f"{name}={base64.b64encode(name.encode() * 16).decode()}" for name in ("k1", "k2")
    )
    monkeypatch.setenv("ROTA_SECRET_KEYS", old_key)
    secret = put(hooks, receiver)
    assert put(hooks, receiver) == ""
    monkeypatch.setenv("ROTA_SECRET_KEYS", f"{new_key},{old_key}")
    cli = CommandLine(Path.cwd(), ROTA_DATABASE_URL=app.url)
    assert cli.ok("secrets", "rotate", "--json").json["unused"] == ["k1"]
    assert cli.ok("secrets", "--json").json["keys"][0]["packages"] == 1
    monkeypatch.setenv("ROTA_SECRET_KEYS", new_key)
    rotated = hooks.rotate("crm")
    stored = connection.execute("select sealed from rota.webhook_endpoint order by name").fetchall()
    assert stored[0] == ([{"secret": clear}],)
    assert [sealed["secret"]["key"] for sealed in stored[1][0]] == ["k2", "k2"]
    hooks.emit("x", event_id="1")
    app.drain()
    assert len(receiver.requests) == 2
    first = next(sent for sent in receiver.requests if "," in sent.headers["webhook-signature"][3:])
    for key in (secret, rotated):
        webhook.verify(first.headers, first.body, key)


@rule("M45")
def test_a_delivery_waits_for_a_worker_with_the_key_of_its_secret(
    make: Make,
    receiver: Receiver,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = f"of-hooks={base64.b64encode(b'k' * 32).decode()}"
    app, hooks = make()
    monkeypatch.setenv("ROTA_SECRET_KEYS", keys)
    put(hooks, receiver)
    hooks.emit("x", event_id="1")
    hooks.emit("x", event_id="2")
    monkeypatch.delenv("ROTA_SECRET_KEYS")
    app.drain()
    waits = connection.execute("select distinct waits_for, attempts from rota.job").fetchall()
    assert (waits, receiver.requests) == ([("key of-hooks", 0)], [])
    assert len([record for record in caplog.records if "'of-hooks'" in record.getMessage()]) == 1
    monkeypatch.setenv("ROTA_SECRET_KEYS", keys)
    drain(app, connection)
    assert len(receiver.requests) == 2


@rule("M45", "M71")
def test_what_an_endpoint_answers_is_kept_without_secrets_and_without_what_cannot_be_stored(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put_all(hooks, receiver, "/200/echo-token", "/500/echo-token")
    put_all(hooks, receiver, "/nul", "/nul-gone", "/nul-ok")
    hooks.emit("x", event_id="1")
    app.drain()
    kept = connection.execute(
        "select string_agg(h::text, '') from (select to_jsonb(j) from rota.jobs j union all "
        "select to_jsonb(a) from rota.attempt a) h"
    ).fetchone()
    assert kept is not None
    assert "password=" in kept[0]
    assert "hunter2" not in kept[0]
    states = {endpoint.name: endpoint.state for endpoint in hooks.endpoints()}
    for name, status, code, state in (
        ("nul", "dead", 400, "failing"),
        ("nul-gone", "dead", 410, "disabled"),
        ("nul-ok", "succeeded", 200, "on"),
    ):
        [delivery] = hooks.deliveries(name)
        assert (delivery.status, delivery.code, states[name]) == (status, code, state)
        assert delivery.response and delivery.response.isprintable()


@rule("M71")
def test_a_note_that_fails_does_not_decide_about_the_delivery(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/400")
    put(hooks, receiver, "well", "/well")
    connection.execute("update rota.webhook_endpoint set failing_since = now()")
    connection.execute(
        "alter table rota.webhook_endpoint add constraint no check (id > 9) not valid"
    )
    hooks.emit("x", event_id="1")
    app.drain()
    assert [delivery.status for delivery in hooks.deliveries("crm")] == ["dead"]
    assert [delivery.status for delivery in hooks.deliveries("well")] == ["succeeded"]
    assert len(receiver.of("/well")) == 1


@rule("M71")
def test_a_new_endpoint_of_an_old_name_gets_nothing_of_the_old_one(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, "c", "/old", account="42")
    hooks.emit("x", {"of": 42}, event_id="1", account="42")
    hooks.remove("c")
    put(hooks, receiver, "c", "/new", account="43")
    drain(app, connection)
    assert receiver.requests == []
    assert hooks.deliveries("c") == []
    assert list(hooks.emit("x", {"of": 43}, event_id="1", account="43")) == ["c"]
    drain(app, connection)
    [taken] = receiver.of("/new")
    assert json.loads(taken.body)["data"] == {"of": 43}


@pytest.mark.nightly
@rule("M71")
def test_a_replay_takes_those_that_have_died_since_and_each_once(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/400")
    for number in range(3):
        hooks.emit("x", event_id=f"{number}")
    app.drain()
    connection.execute("update rota.job set failed_at = now() - interval '3 days' where id = 1")
    found = connection.execute(
        "select sent, last from rota.webhook_replay('crm', p_since => '1 day', p_until => 2)"
    ).fetchall()
    assert found == [(1, 2)]
    assert hooks.replay("crm", since="1d") == 1
    drain(app, connection)
    assert hooks.replay("crm", since="4d") == 3
    drain(app, connection)
    assert len(receiver.requests) == 3 + 2 + 3
    for name, given in (("none", {"since": "1d"}), ("crm", {}), ("crm", {"since": 3600})):
        with pytest.raises(rota.UsageError):
            hooks.replay(name, **given)
    with pytest.raises(rota.UsageError, match="no status 'daed'"):
        hooks.deliveries("crm", status="daed")  # type: ignore[arg-type]
    for given in ({}, {"event_id": "2", "since": "1d"}):
        with pytest.raises(rota.UsageError, match="give event_id or since, not both"):
            hooks.replay("crm", **given)

    put(hooks, receiver, path="/well")
    for _ in range(2):  # also one that has arrived, on purpose
        assert hooks.replay("crm", event_id="2", why="they lost it") == 1
        drain(app, connection)
    assert [request.headers["webhook-id"] for request in receiver.of("/well")] == ["2", "2"]
    assert len(hooks.deliveries("crm")) == 3


@rule("M45")
def test_what_is_refused_says_nothing_of_a_secret(make: Make, connection: Connection) -> None:
    _, hooks = make()
    secret = hooks.put("crm", "https://a.example/")
    assert secret is not None
    with pytest.raises(rota.UsageError, match="has a secret: rotate that"):
        hooks.put("crm", "https://a.example/", secret=secret)
    assert hooks.rotate("crm", secret=secret) == secret
    for refused in ("{}", "null", '"whsec_short"', '{"sealed": "x"}'):
        for call in (
            "webhook_put('new', 'https://a.example/', p_secret => %s)",
            "webhook_rotate('crm', %s)",
        ):
            with pytest.raises(psycopg.Error) as error:
                connection.execute(f"select * from rota.{call}".encode(), [refused])
            assert "24 to 64 bytes" in str(error.value)
            assert refused.strip('"') not in str(error.value)


def test_a_key_that_is_no_argument_is_refused_where_the_webhooks_are_made() -> None:
    limit = rota.RateLimit("crm", 5, per="1s", key=lambda endpoint: endpoint.lower())
    with pytest.raises(rota.UsageError, match="is an argument as it is"):
        webhook.Webhooks(options={"rate_limit": limit})


def test_an_endpoint_is_paused_before_a_worker_knows_its_types(database: str) -> None:
    hooks = webhook.Webhooks()
    app = rota.App(database, jobs=[hooks.jobs])
    app.migrate()
    hooks.put("crm", "https://a.example/")
    for turn in (hooks.pause, hooks.disable, hooks.enable, hooks.remove):
        turn("crm")
    app.close()


@rule("M20")
def test_an_event_is_an_enqueue_with_the_app_s_middleware_and_rules(
    database: str, connection: Connection
) -> None:
    hooks = webhook.Webhooks()
    app = rota.App(database, jobs=[hooks.jobs], require_connection=True)
    seen = []

    @app.enqueue_middleware
    @contextmanager
    def carry(jobs: Any) -> Iterator[dict[str, str]]:
        seen.append([job.job_type.name for job in jobs])
        yield {"tenant": "42"}

    app.migrate()
    hooks.put("crm", "https://a.example/")
    with pytest.raises(rota.UsageError, match="require_connection"):
        hooks.emit("x", event_id="1")
    with pytest.raises(rota.UsageError, match="the connection is None"):
        hooks.emit("x", event_id="1", connection=None)  # type: ignore[arg-type]
    with connection.transaction():
        hooks.emit("x", event_id="1", connection=connection)
    assert len(seen) == 1
    assert connection.execute("select meta from rota.job").fetchone() == ({"tenant": "42"},)
    app.close()


@rule("M87")
async def test_async_code_puts_pauses_and_lists_endpoints_also_in_its_transaction(
    make: Make, database: str
) -> None:
    app, hooks = await asyncio.to_thread(make)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        async with connection.transaction(force_rollback=True):
            assert await hooks.aput("gone", "https://crm.example/", connection=connection)
        assert await hooks.aput("crm", "https://crm.example/", connection=connection)
    await hooks.apause("crm", why="they move")
    [endpoint] = await hooks.aendpoints()
    assert (endpoint.name, endpoint.state) == ("crm", "paused")
    with pytest.raises(rota.UsageError, match="there is no endpoint 'gone'"):
        await hooks.arotate("gone")
    await app.aclose()
