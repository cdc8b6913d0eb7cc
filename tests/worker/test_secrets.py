"""Secret and personal arguments: sealed or plain in the row, masked wherever a text leaves."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.client.secrets import list_keys, rotate
from rota.declare.secret import VARIABLE, is_sealed, make_key
from rota.logs import JobFilter
from rota.store import ops
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.worker.table import Connection, rows, value

TOKEN = "t0p-Secret/värde 7"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> str:
    made = make_key("k1")
    monkeypatch.setenv(VARIABLE, made)
    return made


@rule("M45")
def test_a_secret_is_sealed_in_the_row_and_open_in_the_handler(
    app: rota.App, connection: Connection
) -> None:
    seen: list[Any] = []

    @app.job
    async def charge(user: int, token: rota.Secret[str], name: rota.Personal[str] = "") -> None:
        seen.append((user, token.reveal(), name, f"{token} {token!r}"))

    app.sync()
    charge.enqueue(1, rota.Secret(TOKEN), name="Ada")
    charge.enqueue(user=2, token=TOKEN)  # type: ignore[arg-type]
    stored = [row[0] for row in rows(connection, "select payload from rota.job order by id")]
    assert [set(payload["token"]) for payload in stored] == [{"sealed", "key"}] * 2
    assert stored[0]["token"] != stored[1]["token"]  # each has a nonce of its own
    assert stored[0]["name"] == "Ada"
    assert TOKEN not in json.dumps(stored)
    assert app.drain().succeeded == 2
    assert sorted(seen) == [
        (1, TOKEN, "Ada", "Secret(***) Secret(***)"),
        (2, TOKEN, "", "Secret(***) Secret(***)"),
    ]


@rule("M45")
def test_a_secret_in_clear_is_refused_whatever_inserts_it(
    app: rota.App, connection: Connection
) -> None:
    @app.job(aliases=("pay",))
    def charge(token: rota.Secret[str] | None = None) -> None: ...

    app.sync()
    sealed = json.dumps({"token": rota.Secret(TOKEN).seal()})
    clear = json.dumps({"token": TOKEN})
    for statement, parameters in (
        ("insert into rota.job (job_type, payload) values ('charge', %s)", (clear,)),
        ("insert into rota.job (job_type, payload) values ('pay', %s)", (clear,)),
        ("select rota.enqueue('charge', %s::jsonb)", (clear,)),
        ("insert into rota.schedule (name, job_type, payload) values ('s', 'pay', %s)", (clear,)),
        (
            "select rota.batch_open(jsonb_build_object('ended', jsonb_build_object("
            "'job_type', 'charge', 'payload', %s::jsonb)), 'continue', null)",
            (clear,),
        ),
    ):
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            connection.execute(statement, parameters)
        said = str(refused.value)
        assert "payload has token in clear, a secret argument of type charge" in said
        assert TOKEN not in said
    for text in (sealed, '{"token": null}', "{}"):
        connection.execute(
            "insert into rota.job (job_type, payload) values ('charge', %s)", (text,)
        )
    with pytest.raises(psycopg.errors.CheckViolation, match="token in clear"):
        connection.execute("update rota.job set payload = %s", (clear,))
    assert value(connection, "select count(*) from rota.job") == 3
    assert app.drain().succeeded == 3


@rule("M45")
def test_what_was_stored_in_clear_before_its_argument_was_secret_still_runs(
    app: rota.App, connection: Connection
) -> None:
    connection.execute(
        "insert into rota.job (job_type, payload) values ('charge', %s)",
        (json.dumps({"token": TOKEN}),),
    )
    seen: list[Any] = []

    @app.job
    def charge(token: rota.Secret[str]) -> None:
        seen.append(token.reveal())

    app.sync()
    connection.execute("update rota.job set priority = 1")
    assert app.drain().succeeded == 1
    assert seen == [TOKEN]


@rule("M45")
def test_a_worker_without_keys_leaves_types_with_secrets_and_runs_the_rest(
    app: rota.App,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @app.job
    def charge(token: rota.Secret[str]) -> None: ...

    @app.job
    def plain() -> None: ...

    charge.enqueue(rota.Secret(TOKEN))
    plain.enqueue()
    monkeypatch.delenv(VARIABLE)
    assert app.drain().succeeded == 1
    assert "jobs of charge wait" in caplog.text and f"{VARIABLE} is not set" in caplog.text
    [[status, attempts, claims]] = rows(connection, "select status, attempts, claims from rota.job")
    assert (status, attempts, claims) == ("queued", 0, 0)


@rule("M45")
def test_a_job_waits_for_a_worker_that_has_the_key_of_its_secret(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    @app.job
    def charge(token: rota.Secret[str]) -> None: ...

    for _ in range(2):
        charge.enqueue(rota.Secret(TOKEN))
    for has in ("k2", "k1"):  # k1: another key of the id under which it is sealed
        caplog.clear()
        connection.execute("update rota.job set run_at = now()")
        monkeypatch.setattr("rota.worker.attempt._missed", set())
        monkeypatch.setenv(VARIABLE, make_key(has))
        assert app.drain().succeeded == 0, has
        facts = "select distinct status, attempts, waits_for, run_at > now() from rota.job"
        assert rows(connection, facts) == [("queued", 0, "key k1", True)], has
        assert caplog.text.count("under key 'k1'") == 1, has
    [waits] = [entry for entry in app.jobs.timeline(1).entries if entry.what == "waits"]
    assert "for a worker that has key k1 in ROTA_SECRET_KEYS" in waits.text
    monkeypatch.setenv(VARIABLE, f"{make_key('k2')},{keys}")
    connection.execute("update rota.job set run_at = now()")
    assert app.drain().succeeded == 2


def _rename(payload: dict[str, Any]) -> dict[str, Any]:
    if "bad" in payload:
        raise ValueError(f"no upgrade of {payload['bad']}")
    return {"token": payload["tok"], "name": payload["who"]}


@rule("M45")
def test_the_values_of_an_upgraded_payload_are_masked_and_wait_for_their_key(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job(max_attempts=1, version=2, upgrade={1: _rename})
    def charge(token: rota.Secret[str], name: rota.Personal[str]) -> None:
        raise ValueError(f"no {token.reveal()} of {name}")

    @app.job(max_attempts=1, version=2, upgrade={1: _rename}, chunk=5)
    def charge_many(items: list[Item]) -> None:
        raise ValueError(f"no {items[0].token.reveal()} of {items[0].name}")

    @app.job(max_attempts=1, version=2, upgrade={1: _rename})
    def greet(bad: rota.Personal[str]) -> None: ...

    app.sync()
    old = json.dumps({"tok": rota.Secret(TOKEN).seal(), "who": "Ada Lovelace"})
    insert = "insert into rota.job (job_type, payload, payload_version) values (%s, %s, %s)"
    for job_type in ("charge", "charge_many"):
        for version in (1, None):
            connection.execute(insert, (job_type, old, version))
    monkeypatch.setenv(VARIABLE, make_key("k2"))
    assert app.drain().dead == 0
    facts = "select distinct status, attempts, waits_for from rota.job"
    assert rows(connection, facts) == [("queued", 0, "key k1")]
    monkeypatch.setenv(VARIABLE, keys)
    connection.execute("update rota.job set run_at = now()")
    connection.execute(insert, ("greet", '{"bad": "Ada Lovelace"}', 1))  # its upgrade fails
    assert app.drain().dead == 5
    stored = "select distinct message from rota.attempt where message <> '' order by 1"
    assert rows(connection, stored) == [("no *** of ***",), ("no upgrade of ***",)]


@dataclasses.dataclass
class Item:
    """The payload of one job of a call for many."""

    token: rota.Secret[str]
    name: rota.Personal[str]


class _List(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.addFilter(JobFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def _raise(**given: Any) -> None:
    try:
        raise LookupError(f"cause {given}")
    except LookupError as cause:
        error = ValueError(f"failed with {given['token']} for {given['name']}")
        error.add_note(f"a note about {given['token']!r}")
        raise error from cause


@rule("M45")
def test_the_values_of_an_attempt_are_masked_in_its_error_its_stack_and_its_logs(
    app: rota.App, connection: Connection
) -> None:
    log = logging.getLogger("shop")

    def fail(token: str, name: str) -> None:
        log.warning("token %s of %s, %s", token, name, {"token": token})
        try:
            _raise(token=token, name=name)
        except ValueError:
            log.exception("it failed with %s", token)
            raise

    @app.job(max_attempts=1)
    def charge(token: rota.Secret[str], name: rota.Personal[str]) -> None:
        fail(token.reveal(), name)

    @app.job(max_attempts=1, chunk=10)
    def charge_many(items: list[Item]) -> None:
        fail(items[0].token.reveal(), items[0].name)

    handler = _List()
    logging.getLogger().addHandler(handler)
    try:
        for name in ("charge", "charge_many"):
            app.enqueue(name, {"token": TOKEN, "name": "Ada Lovelace"})
        assert app.drain().dead == 2
    finally:
        logging.getLogger().removeHandler(handler)
    stored = rows(connection, "select message, stack from rota.attempt")
    assert all("failed with *** for ***" in message for message, _ in stored)
    assert any("it failed with ***" in line for line in handler.lines)
    for text in (*stored[0], *stored[1], *handler.lines):
        for planted in (TOKEN, repr(TOKEN)[1:-1], json.dumps(TOKEN)[1:-1], "Ada", "Lovelace"):
            assert planted not in text


@rule("M45")
def test_the_secrets_of_a_job_are_masked_in_what_is_kept_of_it_and_no_step_has_them(
    app: rota.App, connection: Connection
) -> None:
    @app.job(takes_context=True)
    def charge(
        ctx: rota.Context, way: str, token: rota.Secret[str], card: rota.Secret[int]
    ) -> dict[str, Any]:
        said, more = f"sent {token.reveal()}", 994242424200
        done = ctx.effect(way, about={"to": said}).call(lambda: [said, card.reveal(), more])
        if way == "step":
            ctx.step("sign", lambda: said)
        elif way == "complete":
            with ctx.transaction() as transaction:
                ctx.complete(transaction, {"sent": done})
        return {said: done, way: None}

    for way in ("return", "complete", "step"):
        charge.enqueue(way, rota.Secret(TOKEN), rota.Secret(42424242))
    ended = app.drain()
    assert (ended.succeeded, ended.dead) == (2, 1)
    assert (
        rows(connection, "select result, about from rota.effect where place is null")
        == [(["sent ***", "***", 994242424200], {"to": "sent ***"})] * 3
    )
    kept = [result for (result,) in rows(connection, "select result from rota.jobs order by id")]
    assert kept == [
        {"sent ***": ["sent ***", "***", 994242424200], "return": None},
        {"sent": ["sent ***", "***", 994242424200]},
        None,
    ]
    assert "a secret of the job is in it" in str(
        value(connection, "select message from rota.attempt")
    )


@rule("M45")
def test_what_shows_a_payload_masks_it_and_a_look_behind_the_mask_is_recorded(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    def charge(user: int, token: rota.Secret[str], name: rota.Personal[str]) -> None: ...

    new = charge.new(2**60, rota.Secret(TOKEN), "Ada")
    app.schedule("nightly", "0 2 * * *", new)
    app.sync()
    id_ = app.enqueue(new).id
    job, [schedule] = app.get(id_), app.schedules.list()
    assert (job.payload["name"], set(job.payload["token"])) == ("Ada", {"sealed", "key"})
    for shown in (job.to_dict()["payload"], schedule.to_dict()["payload"]):
        assert shown == {"user": 2**60, "token": "***", "name": "***"}
    assert "Ada" not in f"{job!r} {schedule!r} {new!r}"
    with pytest.raises(rota.UsageError, match="the reason is recorded"):
        app.jobs.reveal(id_, why=" ")
    revealed = app.jobs.reveal(id_, why="she asked", by="bob")
    assert revealed == {"user": 2**60, "token": TOKEN, "name": "Ada"}
    monkeypatch.setenv(VARIABLE, make_key("k2"))
    assert app.jobs.reveal(id_, why="again", by="bob")["token"] == "***"
    actions = rows(connection, "select verb, job, by, why from rota.action order by id")
    assert actions == [("reveal", id_, "bob", "she asked"), ("reveal", id_, "bob", "again")]
    monkeypatch.setenv(VARIABLE, keys)
    app.schedules.put("other", "0 3 * * *", new, why="a test")
    assert "Ada" not in str(rows(connection, "select detail from rota.action"))


@rule("M45")
def test_what_was_ever_hidden_stays_masked_whatever_is_declared_later(
    app: rota.App, connection: Connection
) -> None:
    declare = "select rota.worker_declare('pay', secret_fields => %s, personal_fields => %s)"
    connection.execute(declare, (["token"], ["name"]))
    clear = json.dumps({"token": rota.Secret(TOKEN).seal(), "name": "Ada", "mail": "a@b", "n": 1})
    connection.execute("insert into rota.job (job_type, payload) values ('pay', %s)", (clear,))

    def shown(id_: int = 1) -> dict[str, str]:
        return {n: text for n, text in app.get(id_).to_dict()["payload"].items() if text == "***"}

    connection.execute(declare, (None, ["mail"]))  # renamed
    assert shown().keys() == {"token", "name", "mail"}
    connection.execute(declare, (None, None))  # by an earlier release, which stores it in clear
    connection.execute(
        """insert into rota.job (job_type, payload) values ('pay', '{"token": "t", "name": "A"}')"""
    )
    assert shown(2).keys() == {"token", "name"}
    connection.execute("select rota.worker_declare('charge', aliases => '{pay}')")
    assert shown().keys() == {"token", "name", "mail"}
    connection.execute(declare, (["token", "mail"], None))
    fields = "select secret_fields, personal_fields from rota.job_type where name = 'pay'"
    assert rows(connection, fields) == [(["token", "mail"], ["name"])]


@rule("M45")
def test_the_mask_of_a_screen_is_no_payload_to_retry_with(
    app: rota.App, connection: Connection
) -> None:
    connection.execute("select rota.worker_declare('elsewhere', personal_fields => '{name}')")
    app.enqueue("elsewhere", {"name": "Ada", "n": "***"})
    app.cancel(1)
    shown = app.get(1).to_dict()["payload"]
    with pytest.raises(rota.PayloadError, match="argument 'name'"):
        app.retry(1, payload=shown, why="a test")


@rule("M45")
def test_a_rotation_seals_all_under_the_first_key_and_goes_on_where_it_stopped(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    def charge(amount: object, token: rota.Secret[str]) -> None: ...

    odd = 12345678901234567890123
    sealed = json.dumps({"token": rota.Secret(TOKEN).seal()})
    insert = "insert into rota.job (job_type, payload) select 'charge', %s::jsonb || %s"
    connection.execute(f"{insert} from generate_series(1, 3)", (sealed, f'{{"amount": {odd}}}'))
    app.sync()
    app.schedules.put("nightly", "0 2 * * *", charge.new(1, rota.Secret(TOKEN)))
    charge.enqueue(1, rota.Secret(TOKEN))
    app.batch([charge.new(1, rota.Secret(TOKEN))], then=charge.new(2, rota.Secret(TOKEN)))
    assert app.drain(max_time="5s").succeeded == 6
    charge.using(delay="1h").enqueue(1, rota.Secret(TOKEN))
    new = make_key("k2")
    monkeypatch.setenv(VARIABLE, f"{new},{keys}")
    monkeypatch.setattr("rota.client.secrets.PORTION", 2)
    write, written = ops.write_sealed, list[str]()

    def write_once(place: str, changes: Any) -> Any:
        if written:
            raise InterruptedError
        written.append(place)
        return write(place, changes)

    with monkeypatch.context() as stopping:
        stopping.setattr(ops, "write_sealed", write_once)
        with pytest.raises(InterruptedError):
            app._run(rotate())
    used = app._run(list_keys())
    assert [(use.key, use.seals, use.here) for use in used] == [
        ("k2", True, True), ("k1", False, True),
    ]  # fmt: skip
    assert used[0].jobs == 1 and used[1].history > 0  # what it had written by then stays written
    rotated = app._run(rotate())
    assert (rotated.key, rotated.left, rotated.unused) == ("k2", {}, ["k1"])
    [use] = [found for found in app._run(list_keys()) if found.key == "k2"]
    assert (use.jobs, use.history, use.schedules, use.batches) == (1, 6, 1, 1)
    kept = "select count(*) from rota.jobs where payload ->> 'amount' = %s"
    assert connection.execute(kept, (str(odd),)).fetchone() == (3,)
    monkeypatch.setenv(VARIABLE, new)
    connection.execute("update rota.job set run_at = now()")
    assert app.drain().succeeded == 1
    assert app._run(rotate()).written == 0


@rule("M45")
def test_a_rotation_finds_what_is_sealed_at_any_depth(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = json.dumps({"a": [{"b": {"c": rota.Secret(TOKEN).seal()}}], "text": '"sealed": 1'})
    for table in ("job (job_type, payload)", "schedule (name, job_type, payload)"):
        name = "'s', " if "name" in table else ""
        connection.execute(f"insert into rota.{table} values ({name}'t', %s)", (deep,))
    monkeypatch.setenv(VARIABLE, f"{make_key('k2')},{keys}")
    [_, use] = app._run(list_keys())
    assert (use.key, use.jobs, use.schedules) == ("k1", 1, 1)
    rotated = app._run(rotate())
    assert (rotated.written, rotated.left, rotated.unused) == (2, {}, ["k1"])
    sealed = app.get(1).payload["a"][0]["b"]["c"]
    assert sealed["key"] == "k2" and rota.Secret.open(sealed).reveal() == TOKEN


@rule("M45")
def test_a_rotation_names_what_it_cannot_open_and_seals_the_rest(
    app: rota.App, database: str, connection: Connection, keys: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    insert = "insert into rota.job (job_type, payload) select 't', %s from generate_series(1, %s)"
    sealed = rota.Secret(TOKEN).seal()
    bad = {"bad": {**sealed, "sealed": "A" * 60}, "odd": {**sealed, "sealed": "A" * 39}}
    connection.execute(insert, (json.dumps({**bad, "good": sealed}), 11))
    connection.execute(insert, (json.dumps({"good": sealed}), 1))
    new = make_key("k2")
    monkeypatch.setenv(VARIABLE, f"{new},{keys}")
    rotated = app._run(rotate())
    named = [f"job {id_}" for id_ in range(1, 11)]
    assert (rotated.written, rotated.unopened, rotated.unopened_rows) == (12, 11, named)
    assert (rotated.left, rotated.missing, rotated.unused) == ({"k1": 11}, [], [])
    assert app.get(12).payload["good"]["key"] == app.get(1).payload["good"]["key"] == "k2"
    assert app.get(1).payload["odd"] == bad["odd"]
    monkeypatch.setenv(VARIABLE, new)
    told = CommandLine(tmp_path, ROTA_DATABASE_URL=database)("secrets", "rotate")
    assert told.status == 1 and "key k1 is still in use: 11 rows, and missing here" in told.out


@rule("M45")
def test_a_rotation_leaves_a_row_alone_that_changes_meanwhile(
    app: rota.App, connection: Connection, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job
    def charge(user: int, token: rota.Secret[str]) -> None: ...

    app.sync()
    charge.enqueue(1, rota.Secret(TOKEN))
    monkeypatch.setenv(VARIABLE, f"{make_key('k2')},{keys}")
    write = ops.write_sealed

    def write_late(place: str, changes: Any) -> Any:
        connection.execute("update rota.job set payload = payload || '{\"user\": 2}'")
        return write(place, changes)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ops, "write_sealed", write_late)
        rotated = app._run(rotate())
    assert (rotated.written, rotated.left, rotated.unused) == (0, {"k1": 1}, [])
    rotated = app._run(rotate())
    assert (rotated.written, rotated.left, rotated.unused) == (1, {}, ["k1"])
    assert app.get(1).payload["user"] == 2


SEALED = {
    '{"sealed": "%s", "key": "k1"}': True,
    '{"sealed": "%s", "key": "A.b_c-9"}': True,
    '{"sealed": "%s", "key": "k1", "more": 1}': False,
    '{"sealed": "%s", "key": 1}': False,
    '{"sealed": "%s"}': False,
    '{"sealed": "tok-1", "key": "k1"}': False,
    '{"sealed": ["%s"], "key": "k1"}': False,
    **{
        json.dumps({"sealed": "%s", "key": key}): False
        for key in ("", "-k", "k 1", "k1\n", 'k"1', "ключ", "k" * 51, "my password")
    },
    **dict.fromkeys(('"%s"', "[]", "1", "{}", "null", '["sealed", "key"]'), False),
}


@rule("M45")
def test_sql_and_python_take_the_same_for_sealed(connection: Connection) -> None:
    for given, sealed in SEALED.items():
        text = given.replace("%s", "A" * 40)
        asked = connection.execute("select rota.is_sealed(%s::jsonb)", (text,)).fetchone()
        assert asked == (sealed,) and is_sealed(json.loads(text)) is sealed, text
