"""What a job asks of its limit and its breaker: by every way in, and as a worker reads it."""

from __future__ import annotations

import msgspec
import pytest
from psycopg.errors import CheckViolation

import rota
from rota.errors import UsageError
from tests.store.work import Connection
from tests.support.rules import rule

Export = rota.JobType[..., ..., None]


def find_account(account: str) -> str:
    return {"Acme": "acme", "Best": "best"}[account]


@pytest.fixture
def export(app: rota.App) -> Export:
    limit = rota.RateLimit(
        "api", 10, "1s", burst=5, key=find_account, cost=lambda rows: 1 * len(rows)
    )

    @app.job(
        "export",
        rate_limit=limit,
        breaker=rota.Breaker("host", key=lambda host: host),
        unique=rota.Unique(lambda account, host: f"{account} {host}", on_duplicate="replace"),
    )
    def export(account: str, rows: list[int], host: str = "a.example") -> None: ...

    app.sync()
    return export


@rule("M21", "M61", "M62")
def test_every_way_to_enqueue_says_what_the_functions_of_the_type_make(
    app: rota.App, connection: Connection, export: Export
) -> None:
    given = {"account": "Acme", "rows": [1, 2]}
    export.using(meta={"trace": "7"}).enqueue(**given, host="first")
    app.enqueue("export", given | {"host": "second"})
    app.enqueue_many([export.new(**given, host=f"many {n}") for n in range(2)])
    text, params = export.new(**given, host="third").statement("pyformat")
    connection.execute(text.encode(), params)
    app.batch([export.new(**given, host="member")], then=export.new(**given, host="follows"))
    app.schedules.put("nightly", "0 2 * * *", export.new(**given, host="tick"))
    app.schedules.trigger("nightly")
    asked = "select distinct meta -> 'rota.asks' from rota.job"
    assert connection.execute(asked).fetchall() == [({"limit": "acme", "cost": 2},)]
    assert connection.execute("select count(*) from rota.job").fetchone() == (7,)
    [(meta,)] = connection.execute("select meta from rota.job where meta ? 'trace'").fetchall()
    assert meta == {"trace": "7", "rota.asks": {"limit": "acme", "cost": 2}}

    replaced = export.enqueue("Acme", [1, 2, 3], host="second")
    assert replaced.change == "replaced"
    app.jobs.discard(replaced.id)
    again = app.retry(replaced.id, payload={"account": "Best", "rows": [1]})
    asked = "select meta -> 'rota.asks' from rota.job where id = any (%s) order by id"
    found = connection.execute(asked, [[replaced.id, again.id]]).fetchall()
    assert found == [({"limit": "best", "cost": 1},)]


@rule("M43", "M62")
def test_a_function_that_raises_or_makes_no_key_refuses_the_enqueue(
    app: rota.App, connection: Connection, export: Export
) -> None:
    place = rf"export'.*: its rate_limit key function at {__file__}:\d+"
    with pytest.raises(UsageError, match=rf"{place} raised KeyError: 'Cost'; nothing was inserted"):
        export.enqueue("Cost", [1])
    with pytest.raises(UsageError, match=r"its rate_limit cost function .* 1 to 5, not 6"):
        export.enqueue("Acme", [1] * 6)
    with pytest.raises(UsageError, match=r"\(job 1 of the list\): its breaker key function"):
        export.enqueue_many([{"account": "Acme", "rows": [1], "host": h} for h in ("a", "")])
    assert connection.execute("select from rota.job").fetchall() == []


@rule("M21", "M62")
def test_only_the_enqueue_of_a_name_takes_what_a_job_asks_from_meta(
    app: rota.App, database: str, export: Export
) -> None:
    carried = {"rota.asks": {"limit": "parent", "cost": 5}, "trace": "7"}
    child = export.using(meta=carried).enqueue("Acme", [1], host="child")
    assert app.get(child.id).meta == {"trace": "7", "rota.asks": {"limit": "acme", "cost": 1}}
    other = rota.App(database)  # without the type
    named = other.enqueue("export", {"host": "b"}, key="named", meta=carried)
    assert app.get(named.id).meta == carried
    with pytest.raises(CheckViolation, match='meta lacks "limit" under'):
        other.enqueue("export", {"host": "c"}, key="named")  # it would replace that
    other.close()


@rule("M61", "M62")
def test_a_row_from_sql_says_what_no_argument_says_unless_it_was_there_before(
    app: rota.App, connection: Connection, export: Export
) -> None:
    def read(asks: str, payload: str) -> tuple[str, int, str]:
        job = put(connection, asks, payload)
        [asked] = connection.execute("select key, cost from rota.limits_asked(%s)", [[job]])
        return (*asked, export._declaration.asks.read_breaker_key(app.get(job)))

    for asks, lacks in (("{}", "limit"), ('{"limit": 1}', "cost")):
        with pytest.raises(CheckViolation, match=f'meta lacks "{lacks}" under "rota.asks"'):
            put(connection, asks, "{}")
    with pytest.raises(CheckViolation, match='meta lacks "limit"'):
        put(connection, '{"cost": 1, "limit": null}', "{}")
    assert read('{"limit": 7, "cost": 3}', '{"host": "b"}') == ("7", 3, "b")
    connection.execute("update rota.job_type set asks = null")
    assert read("{}", "{}") == ("", 1, "a.example")
    assert read('{"limit": [], "cost": 9999999999}', '{"host": 7}') == ("", 5, "7")
    assert read('{"limit": "", "cost": "2"}', '{"host": ["c"]}') == ("", 1, "")
    assert read('["limit"]', '{"host": 1e5000}') == ("", 1, "a.example")


@rule("M62")
def test_an_alert_and_a_follower_from_before_are_enqueued_without_a_key(
    app: rota.App, connection: Connection, export: Export
) -> None:
    found = '{"value": 1, "message": "m"}'
    step = f'[{{"step": "fires", "subject": "s", "notifications": 0, "match": {found}}}]'
    connection.execute("update rota.alert_rule set notify_job = 'export'")
    rule_name = "(select min(name) from rota.alert_rule)"
    write = f"select problem from rota.alert_write({rule_name}, %s, '1 s')"
    assert connection.execute(write.encode(), [step]).fetchone() == (None,)
    before = msgspec.structs.replace(export.new("Acme", [1], host="follows"), asks_json=None)
    app.batch([app.job("member")(lambda: None).new()], then=before)
    connection.execute("select rota.batch_follow(id, 'succeeded') from rota.batch")
    assert connection.execute("select then_error from rota.batch").fetchone() == (None,)


def put(connection: Connection, asks: str, payload: str) -> int:
    """Insert a job by hand; return its id."""
    [[id_]] = connection.execute(
        "insert into rota.job (job_type, idempotency_key, payload, meta) values "
        "('export', gen_random_uuid(), %s, jsonb_build_object('rota.asks', %s::jsonb)) "
        "returning id",
        [payload, asks],
    ).fetchall()
    return int(id_)
