"""Every block of the pages on SQL, run by roles that have the documented grants and nothing
else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import rota
from rota.cli import run
from rota.store.migrate import migrate
from rota.store.statements import sql_files
from tests.docs.reader import read_page
from tests.store.work import Connection, drop_days
from tests.support.rules import rule

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["tables-and-sql.md", "sql-enqueue-and-read.md", "sql-actions.md", "sql-worker.md"]
"""In the order of a reader: what a later one reads or changes, an earlier one has made."""
PAGE = "\n".join(map(read_page, PAGES))
BLOCKS = re.findall(
    r"```sql\n-- as (the owner|the superuser|a producer|a reader|an operator|a worker in "
    r"SQL)\n(.*?)```",
    PAGE,
    re.DOTALL,
)
STATEMENT = re.compile(r"(.+?);(?:  -- ([A-Z]+ [0-9 ]+))?\n", re.DOTALL)
ROLES = ["my_producer", "my_reader", "my_operator", "my_sql_worker", "my_worker"]


@pytest.fixture
def roles(admin: Connection, database: str) -> Iterator[dict[str, str]]:
    """Roles of this test, by the names that the page gives them; without any right."""
    made = {name: f"{name}_{uuid4().hex[:12]}" for name in ROLES}
    for name in made.values():
        admin.execute(sql.SQL("create role {} nologin").format(sql.Identifier(name)))
    yield made
    with psycopg.connect(database, autocommit=True) as connection:
        for name in made.values():
            connection.execute(
                sql.SQL("drop owned by {0} cascade; drop role {0}").format(sql.Identifier(name))
            )


def _run(connection: Connection, block: str, roles: dict[str, str]) -> None:
    """Run each statement of a block; where the page says what it answers, that is what it must
    answer.
    """
    for name, role in roles.items():
        block = block.replace(name, role)
    statements = STATEMENT.findall(block)
    assert statements, f"no statement in {block!r}"
    for statement, answer in statements:
        done = connection.execute(statement.encode())
        assert not answer or done.statusmessage == answer, statement


def _grant(connection: Connection, roles: dict[str, str]) -> None:
    for who, block in BLOCKS:
        if who == "the owner":
            _run(connection, block, roles)


def _as(database: str, role: str) -> str:
    return make_conninfo(database, options=f"-c role={role}")


@rule("M15", "M45")
def test_a_producer_inserts_the_columns_of_a_producer_and_no_others(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    refused = {
        "status": "'dead'", "schedule": "'s'", "scheduled_for": "now()", "last_error": "'x'",
        "progress": "'{}'", "updated_at": "'infinity'", "started_at": "now()", "origin_id": "1",
        "attempts": "3", "claims": "3", "locked_by": "'x'", "cancel_reason": "'x'",
        "verdict": "'x'", "created_at": "now()", "losses": "1",
    }  # fmt: skip
    with psycopg.connect(_as(database, roles["my_producer"]), autocommit=True) as producer:
        for column, value in refused.items():
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                producer.execute(
                    f"insert into rota.job (job_type, {column}) values ('t', {value})".encode()
                )
        producer.execute("insert into rota.job (job_type) values ('t') returning id")


@rule("M15", "M51")
def test_no_setting_of_its_session_lets_a_producer_insert_a_job_without_its_key(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job_type (name, key_arguments) values ('keyed', '{a}')")
    connection.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'k')")
    with psycopg.connect(_as(database, roles["my_producer"]), autocommit=True) as producer:
        for name in ("keys_taken", "needs_no_key"):
            again = "insert into rota.job (job_type, idempotency_key) values ('t', 'k')"
            taken_back = f"{again} returning set_config('rota.{name}', '', false)"
            for value, insert in product(("1", "2", "on"), (again, taken_back)):
                producer.execute(f"set rota.{name} = '{value}'".encode())
                with suppress(psycopg.errors.CheckViolation):
                    producer.execute(insert.encode())
                with pytest.raises(psycopg.errors.CheckViolation, match="idempotency_key is missi"):
                    producer.execute("insert into rota.job (job_type) values ('keyed')")
            producer.execute(f"reset rota.{name}".encode())
    assert connection.execute("select count(*) from rota.job").fetchone() == (1,)


@rule("M15", "M21")
def test_a_producer_of_python_enqueues_one_many_and_with_every_option(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    app = rota.App(_as(database, roles["my_producer"]))

    @app.job("t")
    def work(number: int) -> None: ...

    options: dict[str, Any] = {
        "queue": "q", "priority": 3, "delay": "1h", "expires": "2h", "max_attempts": 2,
        "timeout": "1m",
        "meta": {"a": 1}, "key": "k",
    }  # fmt: skip
    assert work.enqueue(1).created and work.using(**options).enqueue(2).created
    assert not work.using(**options).enqueue(2).created
    new = [work.new(number) for number in range(1_500)]
    many = app.enqueue_many([*new, work.using(key="k").new(2)])
    assert [job.created for job in many] == [True] * len(new) + [False]
    for refused in (app.find, app.sync):
        with pytest.raises(rota.errors.SchemaError, match="lacks a privilege"):
            refused()
    app.close()


@pytest.mark.nightly
@rule("M15")
def test_every_block_of_the_page_works_with_the_documented_grants_alone(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job_type (name, breaker) values ('mail', 'smtp')")
    connection.execute("insert into rota.job_type (name, queue) values ('news', 'email')")
    by = {
        "a producer": roles["my_producer"],
        "a reader": roles["my_reader"],
        "an operator": roles["my_operator"],
        "a worker in SQL": roles["my_sql_worker"],
    }
    for who, block in BLOCKS:
        if who in by:
            with psycopg.connect(_as(database, by[who]), autocommit=True) as own:
                _run(own, block, roles)
    assert connection.execute("select count(*) from rota.job").fetchone() == (1005,)
    assert connection.execute(
        "select result from rota.job_history where status = 'succeeded'"
    ).fetchall() == [({"width": 640},)]
    assert connection.execute(
        "select count(*) from rota.job_history where status = 'cancelled'"
    ).fetchone() == (3,)
    assert connection.execute(
        "select resolution ->> 'as' from rota.job_history where status = 'dead' order by id"
    ).fetchall() == [("fixed",), ("archived",)]


def test_no_block_of_sql_escapes_the_tests() -> None:
    assert len(BLOCKS) == PAGE.count("```sql") > 5


READING = (
    ["jobs"], ["jobs", "--error", "x"], ["job", "1"], ["schedules"], ["schedules", "show", "s"],
    ["stats"], ["queues"], ["workers"], ["types"],
    ["jobs", "--batch", "1"], ["batches"], ["batches", "show", "1"],
    ["alerts"], ["check"], ["effects"], ["breakers"], ["top", "--once"], ["migrate", "--check"],
)  # fmt: skip


@rule("M15", "M85")
def test_a_reader_can_do_all_that_only_reads(
    database: str, connection: Connection, roles: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job (job_type) values ('t')")
    connection.execute(
        "insert into rota.job (job_type, status, failed_at) values ('t', 'dead', now())"
    )
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('s', 't', '0 2 * * *')"
    )
    connection.execute("select rota.batch_add(rota.batch_open(null, 'continue', null), '{1}')")
    connection.execute("update rota.job set batch = 1 where id = 1")
    url = make_conninfo(
        database, options=f"-c role={roles['my_reader']} -c default_transaction_read_only=on"
    )

    for command in READING:
        status = run([*command, "--url", url, "--schema", "rota"])
        assert status == (1 if command == ["check"] else 0), command  # 1: a job is dead
        assert capsys.readouterr().err in ("", OF_THE_LAST_DAY), command
    run(["doctor", "--url", url, "--schema", "rota", "--json"])
    looked = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in looked["checks"] if check["level"] == "skipped"] == ["app"]

    reader = rota.App(url)
    assert [reader.get(1).id, reader.join(2).id, reader.jobs.timeline(1).job.id] == [1, 2, 1]
    assert (
        len(reader.find()),
        len(reader.find(error="x")),
        reader.queues.stats().jobs["queued"],
    ) == (2, 0, 1)
    assert (
        [schedule.name for schedule in reader.schedules.list()]
        == [reader.schedules.get("s").name]
        == ["s"]
    )
    assert (reader.schedules.runs("s"), reader.queues.pauses()) == ([], [])
    assert ([job.id for job in reader.find(batch=1)], reader.batches.get(1).total) == ([1], 1)
    reader.close()
    with (
        psycopg.connect(_as(database, roles["my_reader"])) as own,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        own.execute("update rota.job set priority = 1")


@rule("M15", "M72")
def test_a_reader_of_jobs_finds_members_without_a_right_on_batches(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    name = sql.Identifier(roles["my_reader"])
    connection.execute(sql.SQL("grant usage on schema rota to {}").format(name))
    connection.execute(sql.SQL("grant select on rota.jobs to {}").format(name))
    connection.execute("insert into rota.job (job_type, batch) values ('t', 1), ('t', null)")
    connection.execute("select rota.batch_add(rota.batch_open(null, 'continue', null), '{1}')")
    reader = rota.App(_as(database, roles["my_reader"]))
    assert [job.id for job in reader.find(batch=1)] == [1]
    assert [job.id for job in reader.find()] == [2, 1]
    reader.close()


OF_THE_LAST_DAY = "finished jobs: last 24 h; for more: --since 14d\n"


@rule("M15", "M87")
def test_the_python_client_cancels_with_the_grants_of_an_operator(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job (job_type) values ('t')")
    refused, operator = (
        rota.App(_as(database, roles[name])) for name in ("my_producer", "my_operator")
    )
    with pytest.raises(rota.errors.SchemaError, match="lacks a privilege"):
        refused.cancel(1)
    assert operator.cancel(1) is rota.Status.CANCELLED
    refused.close()
    operator.close()


BY_ID = (
    ["retry", "1"],
    ["cancel", "1"],
    ["discard", "2"],
    ["retry", "2"],
    ["archive", "3", "--why", "x"],
    ["retry", "--again", "2"],
    ["queues", "pause", "q", "--force"],
)
READING_TOO = (
    ["queues", "resume", "q"],
    ["retry", "4", "--new-payload", "{}"], ["cancel", "--type", "t", "--yes"],
    ["schedules", "pause", "s"],
    ["schedules", "resume", "s"],
)  # fmt: skip


@pytest.mark.nightly
@rule("M15", "M87")
def test_an_operator_that_may_not_read_acts_by_ids_and_one_that_may_does_everything(
    database: str, connection: Connection, roles: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job (job_type) values ('t'), ('t'), ('t'), ('t'), ('t')")
    connection.execute("update rota.job set status = 'dead', failed_at = now() where id in (3, 4)")
    connection.execute(
        "insert into rota.schedule (name, job_type, cron) values ('s', 't', '0 2 * * *')"
    )
    target = ["--url", _as(database, roles["my_operator"]), "--schema", "rota"]
    for command in BY_ID:
        assert (run([*command, *target]), capsys.readouterr().err) == (0, ""), command

    acted = "select count(*) from rota.action"
    before = connection.execute(acted).fetchone()
    for command in READING_TOO:
        assert run([*command, *target]) == 3 and "lacks a privilege" in capsys.readouterr().err, (
            command
        )
    assert connection.execute(acted).fetchone() == before, "an error, and it was done all the same"

    connection.execute(
        sql.SQL("grant {} to {}").format(
            sql.Identifier(roles["my_reader"]), sql.Identifier(roles["my_operator"])
        )
    )
    for command in READING_TOO:
        assert run([*command, *target]) == 0, capsys.readouterr().err
    app = rota.App(target[1])
    app.schedules.pause("s")
    assert app.schedules.resume("s").paused_at is None
    app.close()


NOT_GRANTED = [
    ("my_producer", "select payload from rota.job"),
    ("my_producer", "update rota.job set priority = 1"),
    ("my_producer", "delete from rota.job"),
    ("my_producer", "select * from rota.jobs"),
    ("my_producer", "insert into rota.idempotency (job_type, key, job) values ('t', 'k', 1)"),
    ("my_producer", "insert into rota.job_history (id) values (1)"),
    (
        "my_producer",
        "insert into rota.schedule (name, job_type, last_error) values ('s', 't', 'x')",
    ),
    (
        "my_producer",
        "select rota.job_claim('w', '1', '{t}', '{1 min}', '{f}', '{1}', '{1}', '{1}', '{0}', "
        "'{1}', '{default}', '{0}', '{1970-01-01Z}', '{0}', '{0}', '0', false, null, false)",
    ),
    ("my_producer", "select rota.job_finish('{1}', '{1}', null, null, null, null, null, '1')"),
    ("my_sql_worker", "select * from rota.job"),
    ("my_sql_worker", "update rota.worker set release = '1'"),
    ("my_sql_worker", "select rota.job_hand_back(1, 0, 1)"),
    ("my_sql_worker", "select rota.results_of('{1}')"),
    ("my_sql_worker", "select rota.job_finish('{1}', '{0}', null, null, null, null, null, '1')"),
    ("my_operator", "select rota.key_act('cancel', 'k', '', '', '', null, null, null, null)"),
    ("my_operator", "select rota.job_take_over('discard', '{1}', null, null, true)"),
    ("my_operator", "select rota.dead_resolve('{1}', '{}', null, null)"),
    ("my_operator", "select rota.job_to_history('{1}', 'cancelled')"),
    ("my_operator", "select * from rota.job"),
    ("my_reader", "insert into rota.job (job_type) values ('t')"),
    ("my_reader", "update rota.alert_rule set period = '1 h'"),
]
"""What a role lacks a right on a table for."""


ANYBODY = {
    "alert_matches", "batch_ranges", "canonical_type", "hidden_fields", "holders_lock",
    "holders_meet", "ids_behind", "ids_reserve", "job_check", "job_fill",
    "jobs_insert_for", "key_holders", "key_jobs", "keys_take", "lane_jobs", "secret_check",
}  # fmt: skip
"""Functions with the owner's rights that check who calls, are triggers, or show no payload."""


@rule("M15", "M45")
def test_of_the_functions_with_the_owner_s_rights_a_role_may_call_what_the_page_grants_it(
    connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    for role, name in roles.items():
        granted = re.findall(rf"GRANT EXECUTE ON FUNCTION ([^;]*) TO {role};", PAGE)
        may = connection.execute(
            "select proname from pg_proc where pronamespace = 'rota'::regnamespace and prosecdef "
            "and has_function_privilege(%s, oid, 'execute')",
            [name],
        ).fetchall()
        named = set(re.findall(r"rota\.(\w+)", " ".join(granted)))
        assert {function for (function,) in may} == ANYBODY | named, role


@rule("M15")
def test_the_pages_name_the_functions_for_users_and_no_others() -> None:
    for_users, own = (
        {file.name.removesuffix(".sql") for file in sql_files(folder)}
        for folder in ("api", "functions")
    )
    for_readers = [page for page in DOCS.rglob("*.md") if "project" not in page.parts]
    pages = "\n".join(page.read_text() for page in for_readers)
    assert for_users <= set(re.findall(r"\w+", pages))
    assert own & set(re.findall(r"rota\.(\w+)\(", pages)) <= set(rota.__all__)


@rule("M15")
def test_a_name_that_begins_with_worker_is_on_the_page(connection: Connection) -> None:
    found = connection.execute(
        "select proname from pg_proc where pronamespace = 'rota'::regnamespace "
        "and proname like 'worker\\_%'"
    ).fetchall()
    assert {name for (name,) in found} == set(re.findall(r"rota\.(worker_\w+)", PAGE))


@rule("M15")
def test_what_a_role_was_not_granted_it_may_not_do(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    _grant(connection, roles)
    connection.execute("insert into rota.job (job_type) values ('t')")
    may = []
    for role, statements in groupby(sorted(NOT_GRANTED), itemgetter(0)):
        with psycopg.connect(_as(database, roles[role]), autocommit=True) as own:
            for _, statement in statements:
                with suppress(psycopg.errors.InsufficientPrivilege):
                    own.execute(statement.encode())
                    may.append((role, statement))
    assert may == []


@rule("M15")
def test_a_worker_that_owns_the_schema_needs_no_other_right(
    database: str, connection: Connection, roles: dict[str, str]
) -> None:
    connection.execute("drop schema rota cascade")
    for who, block in BLOCKS:
        if who == "the superuser":
            _run(connection, block, roles)
    url = _as(database, roles["my_worker"])
    migrate(url)
    app = rota.App(url)

    @app.job("t")
    def handler(fails: bool) -> None:
        if fails:
            raise LookupError

    app.enqueue_many([handler.new(False), handler.using(max_attempts=1).new(True)])
    drop_days(connection, "job_history")
    report = app.drain()
    assert (report.succeeded, report.dead) == (1, 1)
    app.close()


def _shown_columns() -> list[tuple[str, str, str]]:
    """The name of each column of a job, its type, and what a producer may give."""
    text = PAGE[PAGE.index("| column of `rota.jobs`") :].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| (\w+) \|.*\| ([^|]*?) ?\|$", text, re.MULTILINE)


def _columns(connection: Connection, relation: str) -> dict[str, str]:
    rows = connection.execute(
        "select attname, format_type(atttypid, null) from pg_attribute where attrelid = "
        "%s::regclass and attnum > 0 and not attisdropped order by attnum",
        [relation],
    ).fetchall()
    return {name: kind.replace("timestamp with time zone", "timestamptz") for name, kind in rows}


@rule("M15")
def test_the_page_lists_the_columns_of_the_view_and_no_others(connection: Connection) -> None:
    shown = {name: kind for name, kind, _ in _shown_columns()}
    assert list(shown.items()) == list(_columns(connection, "rota.jobs").items())


@rule("M15")
def test_a_producer_may_give_the_columns_of_which_the_page_says_so(connection: Connection) -> None:
    given = {name: kind for name, kind, default in _shown_columns() if default}
    [granted] = re.findall(r"GRANT INSERT \((.*)\)\n  ON rota\.job ", PAGE)
    assert given.keys() == set(granted.split(", "))
    assert given.items() <= _columns(connection, "rota.job").items()
