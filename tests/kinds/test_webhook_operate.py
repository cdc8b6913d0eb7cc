"""Webhooks and the people who operate them: two of them at once, erasures, keys, what SQL takes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import rota
from tests.kinds.conftest import Connection, drain
from tests.kinds.test_webhook import Make, put
from tests.store.work import after_it_waited
from tests.support.receiver import Receiver
from tests.support.rules import rule


def beside(database: str, connection: Connection, first: str, second: str) -> Any:
    """Run a statement in a transaction, and another one beside it that waits for it; return the
    rows of the second."""
    with psycopg.connect(database, autocommit=True) as other:
        connection.execute("begin")
        connection.execute(first.encode())
        try:
            return after_it_waited(
                connection,
                other,
                lambda: other.execute(second.encode()).fetchall(),
                lambda: connection.execute("commit"),
            )
        except psycopg.Error as error:
            return error


def live(connection: Connection) -> Any:
    return connection.execute(
        "select count(*) from rota.job where job_type like 'webhook%' and status <> 'dead'"
    ).fetchone()


@rule("M71")
def test_two_replays_at_once_send_each_event_once(
    make: Make, receiver: Receiver, connection: Connection, database: str
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/400")
    hooks.emit("x", event_id="1")
    app.drain()
    since = "select sent from rota.webhook_replay('crm', p_since => '1 day')"
    assert beside(database, connection, since, since) == []
    assert live(connection) == (1,)
    assert connection.execute("select 1 from rota.job where status = 'dead'").fetchall() == []
    put(hooks, receiver)
    drain(app, connection)
    again = "select sent from rota.webhook_replay('crm', '1')"
    beside(database, connection, again, again)
    assert live(connection) == (1,)


@pytest.mark.nightly
@rule("M71")
def test_a_delivery_that_is_retried_by_hand_is_shown_and_sent_once(
    make: Make, receiver: Receiver, connection: Connection, database: str
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/400")
    hooks.emit("x", event_id="1")
    app.drain()
    put(hooks, receiver, path="/ok")
    retry = "select new_id from rota.job_retry(array[1])"
    replay = "select sent from rota.webhook_replay('crm', '1')"
    beside(database, connection, retry, replay)
    [delivery] = hooks.deliveries("crm")
    assert (delivery.status, live(connection)) == ("queued", (1,))
    assert hooks.deliveries("crm", status="dead") == []
    assert hooks.replay("crm", since="1d") == 0
    hooks.replay("crm", event_id="1")
    drain(app, connection)
    assert len(receiver.of("/ok")) == 1
    app.retry(delivery.job, again=True)
    assert hooks.deliveries("crm")[0].job > delivery.job


@rule("M71")
def test_an_event_whose_data_is_gone_is_refused_by_a_replay(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver)
    hooks.emit("x", event_id="1")
    app.drain()
    connection.execute("delete from rota.job_history")
    with pytest.raises(rota.UsageError, match="cannot be sent again: its job has left history"):
        hooks.replay("crm", event_id="1")
    with pytest.raises(rota.UsageError, match="endpoint crm has no event '2'"):
        hooks.replay("crm", event_id="2")
    with pytest.raises(rota.UsageError, match="no endpoint 'none'"):
        hooks.replay("none", event_id="2")
    with pytest.raises(psycopg.Error, match="replay what"):
        connection.execute("select * from rota.webhook_replay('crm')")


@rule("M20", "M71")
def test_an_event_beside_the_removal_of_an_endpoint_goes_to_the_others(
    make: Make, receiver: Receiver, connection: Connection, database: str
) -> None:
    _, hooks = make()
    put(hooks, receiver, "a")
    put(hooks, receiver, "b")
    emit = "select endpoint from rota.webhook_emit('x', '1')"
    found = beside(database, connection, "select rota.webhook_remove('a')", emit)
    assert found == [("b",)]


def search(connection: Connection, text: str) -> list[str]:
    """Return the tables that have a text."""
    tables = connection.execute(
        "select c.relname from pg_class c where c.relnamespace = 'rota'::regnamespace "
        "and c.relkind = 'r' order by 1"
    ).fetchall()
    query = "select 1 from rota.{} t where t::text like %s"
    return [
        name
        for (name,) in tables
        if connection.execute(query.format(name).encode(), [f"%{text}%"]).fetchone()
    ]


@pytest.mark.nightly
@rule("M45")
def test_what_an_endpoint_quotes_of_a_person_is_erased_everywhere(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    quoting = {"echo": "responded with 500", "garbage": "RemoteProtocolError"}
    for name in quoting:
        put(hooks, receiver, name, f"/{name}")
    data = {"user": 812, "name": "planted"}
    for number in range(12):
        hooks.emit("x", data, event_id=f"{number}")
    app.drain()
    reasons = connection.execute("select reason from rota.breaker where state = 'open'").fetchall()
    assert len(reasons) == 2 and "planted" not in str(reasons)
    connection.execute(
        "update rota.webhook_endpoint set failing_since = now() - interval '5 days', failures = 19"
    )
    app.breakers.reset("webhook")
    drain(app, connection)
    for endpoint in hooks.endpoints():
        assert endpoint.state == "disabled"
        assert quoting[endpoint.name] in str(endpoint.why) + str(reasons)
    assert "planted" in str(hooks.deliveries("echo", status="failed")[-1].response)
    connection.execute("select * from rota.alert_matches('packages')")
    app.jobs.erase({"data": data}, why="she asked")
    assert search(connection, "planted") == []


@rule("M42", "M45")
def test_only_a_handler_that_says_so_waits_for_a_key(make: Make, connection: Connection) -> None:
    app, _ = make()

    @app.job(max_attempts=1)
    def forward() -> None:
        raise rota.errors.SecretKeyMissing("k9")  # after a call of somebody else's, say

    app.sync()
    forward.enqueue()
    assert app.drain().dead == 1


@rule("M71")
def test_a_delivery_is_followed_also_when_the_log_of_actions_has_gone(
    make: Make, receiver: Receiver, connection: Connection
) -> None:
    app, hooks = make()
    put(hooks, receiver, path="/400")
    hooks.emit("x", event_id="1")
    app.drain()
    [[job]] = connection.execute("select id from rota.job where status = 'dead'").fetchall()
    app.retry(job)
    connection.execute("delete from rota.action")
    assert hooks.deliveries("crm")[0].status != "dead"
    hooks.replay("crm", event_id="1")
    assert live(connection) == (1,)


URLS = [
    "", None, "ftp://x.example/", "http://", "http://:80/", "http:///x", "http://x.example:0/",
    "http://x.example:65536/", "http://x.example:abc/", "http://[::1/", "http://[::1]x/",
    "http://[:::]/", "http://[1.2.3.4]/", "http://x..example/", "http://.example/",
    "http://x.example/\x01", "http://x.example/\x7f", "http://x.example/\u202ex", "http://x\u200b/",
    "http://x.example/a b", "http://x.example/\u00a0", "http://x.example/\n", " http://x.example/",
    "http://x.example\\@127.0.0.1/", "http://u@x.example/", "http://" + "a" * 64 + ".example/",
    "https://x.example/" + "a" * 2000,
]  # fmt: skip
FIT = [
    "HTTP://X.example", "https://x.example:65535/a?b#c", "http://[2001:db8::1]:80/", "http://a-b_c./",
    "https://x.example/p@y", "https://x.example?u@y",
]  # fmt: skip
SECRETS = [
    "x", "A" * 32, "whsec_", "whsec_" + "A" * 31, "whsec_" + "A" * 33, "whsec_" + "A" * 30 + "==",
    "whsec_" + "A" * 88, "whsec_" + "A" * 87 + "=", "whsec_" + "A" * 32 + "\n",
]  # fmt: skip
FITTING_SECRETS = ["whsec_" + "A" * 32, "whsec_" + "A" * 86 + "==", "whsec_" + "A" * 35 + "="]


@rule("M71", "M45")
def test_sql_and_python_refuse_the_same_endpoints(
    make: Make, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, hooks = make()
    fits = {"name": "new", "url": "https://x.example/"}
    secrets: list[tuple[bool, dict[str, Any]]] = [
        *[(False, {"secret": secret}) for secret in SECRETS],
        *[(True, {"secret": secret}) for secret in FITTING_SECRETS],
    ]
    changes: list[tuple[bool, dict[str, Any]]] = [
        *[(False, {"url": url}) for url in URLS],
        *[(True, {"url": url}) for url in FIT],
        *[(False, {"account": account}) for account in ("", "a" * 101)],
        *[(False, {"events": events}) for events in ([], [["a"], ["b"]], [None], ["order.**"])],
        *[(False, {"name": name}) for name in ("", None, "a b", "a" * 101, "ä", "a\n")],
    ]

    def compare(is_fit: bool, change: dict[str, Any]) -> None:
        in_python = succeeds(lambda: hooks.put(**{**fits, **change}))
        if is_fit:
            hooks.remove("new")
        in_sql = succeeds(lambda: put_in_sql(connection, {**fits, **change}))
        if is_fit:
            hooks.remove("new")
        assert (in_python, in_sql) == (is_fit, is_fit), change

    for is_fit, change in changes + secrets:
        compare(is_fit, change)
    with pytest.raises(rota.UsageError, match="events is a list"):
        hooks.put(**fits, events="order.*")  # type: ignore[arg-type]
    monkeypatch.setenv("ROTA_SECRET_KEYS", f"k1={base64.b64encode(b'k' * 32).decode()}")
    for is_fit, change in secrets:
        compare(is_fit, change)
    assert hooks.endpoints() == []
    hooks.put("crm", "https://a.example/")
    for secret in (*SECRETS, "", 5):
        with pytest.raises(rota.UsageError, match="24 to 64 bytes"):
            hooks.rotate("crm", secret=secret)  # type: ignore[arg-type]


def put_in_sql(connection: Connection, given: dict[str, Any]) -> None:
    names = ", ".join(f"p_{name} => %({name})s" for name in given)
    values = {name: Jsonb(value) if name == "secret" else value for name, value in given.items()}
    connection.execute(f"select * from rota.webhook_put({names})".encode(), values)


def succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except (rota.UsageError, psycopg.errors.InvalidParameterValue):
        return False
    return True


@rule("M71")
def test_sql_gets_a_secret_as_it_is_and_says_what_it_cannot_do(
    make: Make, connection: Connection, database: str
) -> None:
    make()
    new = "select secret from rota.webhook_put('crm', 'https://a.example/')"
    refused = beside(database, connection, new, new)
    assert "another call has just made it" in str(refused)
    with pytest.raises(psycopg.Error, match="paused, disabled or on, not NULL"):
        connection.execute("select rota.webhook_turn('crm', null)")
    for call in ("webhook_put('other', 'https://a.example/')", "webhook_rotate('crm')"):
        found = connection.execute(f"select * from rota.{call}".encode()).fetchone()
        assert found is not None
        assert succeeds(lambda: rota.kinds.webhook.sign(found, "1", b"", 1))  # noqa: B023
        assert found[0].startswith("whsec_")
