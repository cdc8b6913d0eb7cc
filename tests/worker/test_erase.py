"""A person's data is planted wherever a job can leave it, erased, and searched for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.errors import UsageError
from rota.kinds import report, webhook
from tests.store.work import waits
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.table import Connection, rows, status, value
from tests.worker.test_planted_secrets import dump

WHO = "ada@planted.example"
WHY = "a request of its subject"
ERASED: Any = {"payload": {"who": WHO}, "why": WHY, "by": "ann"}

sent: list[str] = []


def greet(ctx: rota.Context, who: rota.Personal[str], how: str) -> dict[str, str]:
    """Leave the person everywhere, as a handler that was written before the law."""
    ctx.progress(1, 2, f"step of {how}")
    with ctx.effect(f"greet:{how}:{who}", about={"to": who}) as effect:
        if not effect.done:
            sent.append(how)
            effect.result = {"sent": who}
    ctx.step(f"note of {who}", str, who)
    if how == "cancels":
        raise rota.Cancel("does not want it")
    if not how.startswith(("succeeds", "again")):
        raise ValueError(f"{how} failed")
    return {"greeted": who}


def plain(who: str) -> str:
    return who


class Shop:
    """An App with both handlers."""

    def __init__(self, url: str) -> None:
        self.app = rota.App(url)
        self.greet: Any = self.app.job(
            takes_context=True,
            max_attempts=2,
            retry=rota.Fixed("1h"),
            unique=lambda who, how: f"{how}:{who}",
            ordered=lambda who, how: f"person:{who}:{how}",
        )(greet)
        self.plain = self.app.job(plain)
        self.app.sync()

    def greeting(self, how: str, **options: Any) -> int:
        """Enqueue a greeting."""
        made: int = self.greet.using(meta={"asked_by": WHO}, **options).enqueue(WHO, how).id
        return made


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    sent.clear()
    shop = Shop(database)
    yield shop
    shop.app.close()


def claim(connection: Connection, job_type: str) -> list[TupleRow]:
    """Begin all jobs of a type, as a worker does; return their ids and claims."""
    query = "select id, claims from rota.claim('default', array[%s], 'hand')"
    return rows(connection, query, job_type)


def found(connection: Connection) -> list[tuple[str, str]]:
    """Each table that has the person, and the row."""
    tables = rows(
        connection,
        "select c.relname from pg_class c where c.relnamespace = 'rota'::regnamespace"
        " and c.relkind in ('r', 'p') and not c.relispartition",
    )
    return [
        (table, row)
        for (table,) in tables
        for (row,) in rows(connection, f"select t::text from rota.{table} t")
        if WHO in row
    ]


def unmask(connection: Connection) -> None:
    """Put the person into the texts from which a mask has kept it: jobs of before have it there."""
    for statement in (
        "update rota.attempt set message = message || ' for ' || %(who)s, stack = %(who)s",
        "update rota.job set last_error = %(who)s, cancel_reason = null where last_error <> ''",
        "update rota.job_history set last_error = %(who)s, progress = %(json)s::jsonb,"
        " waits_for = 'limit x ' || %(who)s where last_error <> ''",
        "update rota.action set why = %(who)s where job is not null",
        "insert into rota.alert (rule, subject, state, severity, since, last_notified_at,"
        " notifications, value, message) select 'dead jobs', subject, 'fires', 'warning', now(),"
        " now(), 1, 1, upper(%(who)s) from unnest(array['', 'person:' || %(who)s]) subject",
        "insert into rota.breaker (name, key, reason) values ('api', '', 'no answer: '|| %(who)s)",
        "update rota.installation set paused_by = %(who)s, paused_why = 'asked by ' || %(who)s",
        "insert into rota.worker (name, host, pid, version, release, job_types, queues, refused)"
        " values ('w', 'h', 1, '1', '1', '{}', '{}', 'retention: ' || %(who)s)",
        "insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome,"
        " message) values (1000000, 1, 1, 'old', 'w', now(), 'dead', 'history left: ' || %(who)s)",
        "insert into rota.idempotency (job_type, key, job, expires_at)"
        " values ('old', 'of:' || %(who)s, 1000000, now() + interval '1 day')",
    ):
        connection.execute(statement.encode(), {"who": WHO, "json": json.dumps({"note": WHO})})


@pytest.mark.nightly
@rule("M45", "M51", "M52")
def test_a_person_is_found_nowhere_after_an_erasure(
    shop: Shop, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    over = {
        how: shop.greeting(how) for how in ("succeeds", "dies", "cancels", "corrected", "archived")
    }
    for _ in range(2):
        shop.app.drain()
        connection.execute("update rota.job set run_at = now() where status = 'failed'")
    shop.app.jobs.archive(over["archived"], why=f"{WHO} is gone")
    payload = {"who": "nobody", "how": "again"}
    corrected = shop.app.retry(over["corrected"], payload=payload, fresh=True).id
    shop.app.drain()
    shop.app.effects.resolve(f"greet:dies:{WHO}", done=True, result=WHO, why="asked")
    failed = shop.greeting("fails")
    shop.app.drain()
    queued, waiting = shop.greeting("queued", delay="1h"), shop.greeting("waits", delay="1h")
    shop.app.cancel(waiting, why=f"{WHO} asked")
    batch = shop.app.batch(
        [shop.plain.using(delay="1h").new("nobody")], then=shop.plain.new(WHO)
    ).id
    followed = shop.app.batch([shop.plain.new("nobody")], then=shop.greet.new(WHO, "succeeds")).id
    shop.app.drain()
    shop.app.schedules.put("nightly", "0 2 * * *", shop.plain.new("nobody"), by="ann", why="asked")
    connection.execute(
        "update rota.action set detail = jsonb_set(detail, '{payload}', %s) where verb = 'put'",
        [json.dumps({"who": WHO})],
    )
    unmask(connection)
    places = {"job", "job_history", "attempt", "action", "effect", "idempotency", "batch"}
    assert {table for table, _ in found(connection)} == places | {
        "breaker", "alert", "installation", "worker"
    }  # fmt: skip
    assert [status(connection, job) for job in (failed, queued)] == ["failed", "queued"]
    before = list(sent)

    erased = shop.app.jobs.erase(**ERASED)
    assert found(connection) == []
    assert WHO.upper() not in str(rows(connection, "select message from rota.alert"))
    assert (erased.running, erased.refused, erased.batches) == ([], {}, [batch])
    assert (erased.schedules, erased.partitions, erased.secrets) == ([], {}, [])
    assert erased.jobs == 9
    assert "greet attempt 2: dead" in caplog.text
    texts = [caplog.text, *(dumped for dumped, *_ in dump(connection))]
    texts += [query for (query,) in rows(connection, "select query from pg_stat_activity") if query]
    assert [text for text in texts if WHO in text] == []

    # What stays: how each ended, and who acted when.
    kept = {how: status(connection, job) for how, job in over.items()}
    assert kept["succeeds"] == "succeeded" and kept["dies"] == "dead"
    assert [status(connection, job) for job in (failed, queued)] == ["cancelled", "cancelled"]
    assert shop.app.get(over["dies"]).resolution is not None
    [day] = rows(connection, "select payload from rota.jobs where id = %s", over["dies"])
    assert list(day[0]) == ["rota.erased"]
    assert value(connection, "select payload from rota.jobs where id = %s", corrected) == day[0]
    [entry] = [logged for logged in shop.app.jobs.log(limit=1000) if logged.verb == "erase"]
    assert (entry.by, entry.why, entry.job) == ("ann", WHY, None)
    assert entry.detail["erased"] == 9 and len(entry.detail["filter"]) == 16

    # A success keeps its key, and so does what the erasure ended.
    again = shop.greet.enqueue(WHO, "succeeds")
    assert (again.created, again.id, again.status) == (False, over["succeeds"], "succeeded")
    [inserted] = shop.app.enqueue_many([shop.greet.new(WHO, "succeeds")])
    assert (inserted.created, inserted.id) == (False, over["succeeds"])
    for how, (id_, ended) in {
        "dies": (over["dies"], "dead"),
        "fails": (failed, "cancelled"),
        "queued": (queued, "cancelled"),
    }.items():
        kept_ = shop.greet.enqueue(WHO, how)
        assert (kept_.created, kept_.id, kept_.status) == (False, id_, ended)
    assert shop.greet.enqueue(WHO, "cancels").created
    shop.app.drain()
    assert sent == before  # the effect is known under its hash
    assert shop.app.batches.get(followed).succeeded == 1
    assert shop.app.jobs.erase(**ERASED).jobs == 1
    assert found(connection) == []
    with pytest.raises(UsageError, match=f"job {over['succeeds']}: .* was erased"):
        shop.app.retry(over["succeeds"], again=True)


@rule("M45")
def test_a_job_that_runs_is_named_and_erased_after_its_end(
    shop: Shop, connection: Connection, database: str, tmp_path: Path
) -> None:
    running = shop.plain.enqueue(WHO).id
    [(_, claims)] = claim(connection, "plain")
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    words = ("erase", "--payload", f"who={WHO}", "--why", WHY)
    said = rota_.ok(*words, "--yes")
    assert said.out == (
        f"0 jobs erased\n1 job still running, erased within an hour of the end: {running}\n"
    )
    assert said.err == "1 job to be erased\n"
    assert [table for table, _ in found(connection)] == ["job"]
    shop.app.drain()
    assert [table for table, _ in found(connection)] == ["job"]
    connection.execute("select rota.fail(%s, %s, 'ValueError', %s)", [running, claims, WHO])
    assert {table for table, _ in found(connection)} == {"job", "attempt"}
    shop.app.drain()  # its pass of maintenance
    assert found(connection) == []
    assert status(connection, running) == "cancelled"
    assert rows(connection, "select * from rota.erasure") == []


@rule("M45")
def test_a_job_that_was_requeued_before_the_pass_is_erased_with_it(
    shop: Shop, connection: Connection
) -> None:
    running = shop.plain.enqueue(WHO).id
    [(_, claims)] = claim(connection, "plain")
    assert shop.app.jobs.erase(**ERASED).running == [running]
    connection.execute("select rota.fail(%s, %s, 'E', 'x', fatal => true)", [running, claims])
    new = shop.app.retry(running).id
    for _ in range(2):
        connection.execute("select rota.erasures_take(100)")
    assert found(connection) == []
    assert [status(connection, job) for job in (running, new)] == ["dead", "cancelled"]


@rule("M45", "M51")
def test_a_key_is_a_hash_where_a_job_that_ran_has_left_no_row(
    shop: Shop, connection: Connection
) -> None:
    brief = shop.app.job("brief", history="failures", unique=lambda who: f"brief:{who}")(plain)
    shop.app.sync()
    running = brief.enqueue(WHO).id
    [(_, claims)] = claim(connection, "brief")
    assert shop.app.jobs.erase(**ERASED).running == [running]
    connection.execute("select rota.succeed(%s, %s)", [running, claims])
    assert [table for table, _ in found(connection)] == ["idempotency"]
    shop.app.drain()
    assert found(connection) == []
    again = brief.enqueue(WHO)
    assert (again.created, again.id, again.status) == (False, running, "succeeded")


@rule("M45")
def test_an_answer_names_what_it_could_not_erase(
    shop: Shop, connection: Connection, database: str, tmp_path: Path
) -> None:
    shop.app.schedules.put("nightly", "0 2 * * *", shop.plain.new(WHO), by="ann", why="asked")
    connection.execute("create schema attic")
    connection.execute("update rota.installation set archive = 'attic'")
    for table in ("job_history", "attempt"):
        connection.execute(
            f"create table attic.{table}_20261001 (like rota.{table} including all)".encode()
        )
    connection.execute("insert into rota.job_type (name, secret_fields) values ('s', '{who}')")
    old = shop.plain.enqueue(WHO).id
    shop.app.drain()
    connection.execute("insert into attic.job_history_20261001 select * from rota.job_history")
    erased = shop.app.jobs.erase(**ERASED)
    assert (erased.jobs, erased.schedules, erased.secrets) == (1, ["nightly"], ["who"])
    assert list(erased.partitions) == ["attic.attempt_20261001", "attic.job_history_20261001"]
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    said = rota_.ok("erase", "--payload", f"who={WHO}", "--why", WHY, "--yes").out
    assert WHO not in said and "schedule nightly is not erased" in said
    for statement in erased.partitions.values():
        given = statement.replace(":'payload'", "%(payload)s").replace(":'value'", "%(value)s")
        connection.execute(given.encode(), {"payload": json.dumps({"who": WHO}), "value": WHO})
    [(payload,)] = rows(connection, "select payload from attic.job_history_20261001")
    assert payload == {"rota.erased": True}
    assert shop.app.jobs.erase(job=old, why=WHY).jobs == 0


@rule("M51", "M45")
def test_a_key_stays_taken_where_its_erasure_commits_while_an_enqueue_waits(
    shop: Shop, connection: Connection, database: str
) -> None:
    ways = ("succeeds alone", "succeeds in bulk", "succeeds as a plain row")
    firsts = {way: shop.greeting(way) for way in ways}
    shop.app.drain()

    def enqueue(way: str, on: psycopg.Connection[TupleRow]) -> bool:
        if way == "succeeds alone":
            return bool(shop.greet.using(connection=on).enqueue(WHO, way).created)
        if way == "succeeds in bulk":
            new = [shop.greet.new(who, way) for who in (WHO, "other")]
            mine, other = shop.app.enqueue_many(new, connection=on)
            assert other.created
            return mine.created
        insert = "insert into rota.job (job_type, idempotency_key, group_key) values (%s, %s, 'g')"
        return on.execute(insert, ["greet", f"{way}:{WHO}"]).rowcount == 1

    for way, first in firsts.items():
        with (
            psycopg.connect(database) as eraser,
            psycopg.connect(database) as second,
            ThreadPoolExecutor(1) as pool,
        ):
            second.execute("select 1")
            eraser.execute("select rota.job_erase(%s, 'x')", [[first]])
            asked = pool.submit(enqueue, way, second)
            eventually(waits(connection, second), what="the enqueue waits for the erasure")
            eraser.commit()
            assert not asked.result(30), way
        key = "select job from rota.idempotency where key = rota.key_hash(%s)"
        assert rows(connection, key, f"{way}:{WHO}") == [(first,)], way
        clear = "select job from rota.idempotency where key = %s"
        assert rows(connection, clear, f"{way}:{WHO}") == [], way
    connection.execute("update rota.idempotency set expires_at = now() - interval '1 second'")
    assert enqueue(ways[0], connection)


QUOTES = (
    "insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome,"
    " message, stack) values (9, 1, 1, 'old', 'w', now(), 'dead', %(text)s, %(text)s)",
    "insert into rota.action (verb, job, by, why, detail)"
    " values ('cancel', 9, %(text)s, %(text)s, jsonb_build_object('was', %(text)s::text))",
    "insert into rota.alert (rule, subject, state, severity, since, last_notified_at,"
    " notifications, value, message) values ('dead jobs', %(text)s, 'fires', 'warning', now(),"
    " now(), 1, 1, %(text)s)",
    "insert into rota.breaker (name, key, reason, changed_by)"
    " values ('api', md5(%(text)s), %(text)s, %(text)s)",
    "insert into rota.batch (on_failure, then_error) values ('wait', %(text)s)",
    "insert into rota.queue (name, paused_by, paused_why)"
    " values (md5(%(text)s), %(text)s, %(text)s)",
    "insert into rota.rate_limit (name, starts, per, burst, changed_by, changed_why)"
    " values (md5(%(text)s), 1, '1 s', 1, %(text)s, %(text)s)",
    "insert into rota.schedule (name, job_type, paused_at, paused_by, paused_why, last_error)"
    " values (md5(%(text)s), 'plain', now(), %(text)s, %(text)s, %(text)s)",
    "insert into rota.effect (key, job, claim, entry, if_uncertain, about, result)"
    " values (%(text)s, 9, 1, 1, 'skip', jsonb_build_object('to', %(text)s::text),"
    " to_json(%(text)s::text))",
    "insert into rota.idempotency (job_type, key, job, expires_at)"
    " values ('old', %(text)s, 9, now() + interval '1 day')",
)
"""Rows of jobs that have left history, and of none."""
TABLES = (
    "job", "job_history", "attempt", "action", "alert", "breaker", "effect", "idempotency",
    "batch", "queue", "rate_limit", "schedule",
)  # fmt: skip
FATES = {
    "goes with its job": """
        job.payload job.meta job.progress job.last_error job.cancel_reason job.waits_for
        job.group_key job.idempotency_key job_history.result job_history.resolution effect.key
        effect.about effect.result idempotency.key webhook_delivery.event_id batch.then_jobs""",
    "is searched for addresses": """
        action.by action.why action.detail alert.subject alert.message attempt.message
        attempt.stack batch.then_error breaker.reason breaker.changed_by installation.paused_by
        installation.paused_why queue.paused_by queue.paused_why rate_limit.changed_by
        rate_limit.changed_why schedule.paused_by schedule.paused_why schedule.last_error
        worker.refused""",
    "is named, or deleted in time, as the page says": """
        schedule.payload schedule.meta schedule.group_key breaker.key rate_limit_key.key
        report_run.params report_run.asked_by webhook_endpoint.name webhook_endpoint.account
        webhook_endpoint.url webhook_endpoint.why webhook_endpoint.by""",
    "is a name of code, of a machine or of Rota's, or a word or figure of Rota's": """
        *.job_type *.queue *.schedule *.release *.status *.outcome *.verdict *.verdict_rule
        *.error_type *.if_uncertain *.state *.severity *.kind *.rule *.on_failure *.hash
        action.verb alert_rule.name alert_rule.notify_job attempt.worker breaker.name
        definition.name definition.server_hash installation.archive installation.database_name
        installation.metrics_worker job.locked_by job.mismatched_releases job_type.* migration.*
        queue.name queue.waiting rate_limit.name rate_limit.declared rate_limit_key.name
        release.name report_file.name report_run.name report_run.file report_run.checksum
        report_run.digest retention.what schedule.name schedule.origin schedule.cron
        schedule.timezone schedule.catch_up schedule.overlap stat_hour.* webhook_delivery.event
        webhook_endpoint.events webhook_endpoint.sealed worker.name worker.host worker.version
        release.job_types worker.job_types worker.queues worker.secret_keys""",
}
"""What an erasure does with each column that holds text. job_history has those of job, too."""


def quote(shop: Shop, connection: Connection, *texts: str) -> None:
    """Let every table say these of somebody else."""
    for text in texts:
        for statement in QUOTES:
            connection.execute(statement.encode(), {"text": text})
        dead, archived, cancelled = (shop.plain.enqueue("nobody").id for _ in range(3))
        shop.app.jobs.discard(archived)
        shop.app.jobs.archive(archived, why=text)
        shop.app.cancel(cancelled, why=text)
        shop.app.jobs.discard(dead)
        connection.execute("update rota.job set last_error = %s where id = %s", [text, dead])


def contents(connection: Connection) -> dict[str, list[str]]:
    """All rows that a text may stand in."""
    read = "select t::text from rota.{} t order by 1"
    return {table: [row for (row,) in rows(connection, read.format(table))] for table in TABLES}


@rule("M45")
def test_what_becomes_of_each_text_of_the_schema_is_decided(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    packages = [webhook.Webhooks().jobs, report.Reports(tmp_path).jobs]
    with closing(rota.App(database, jobs=packages)) as app:
        app.migrate()
    decided = {name for columns in FATES.values() for name in columns.split()}
    texts = rows(
        connection,
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relnamespace = 'rota'::regnamespace and c.relkind in ('r', 'p')"
        " and not c.relispartition and a.attnum > 0 and not a.attisdropped"
        " and a.atttypid::regtype::text in ('text', 'text[]', 'json', 'jsonb')",
    )
    used = set()
    for table, column in texts:
        names = {f"{table}.{column}", f"*.{column}", f"{table}.*"}
        names |= {f"job.{column}"} if table == "job_history" else set()
        assert names & decided, f"does an erasure look into {table}.{column}? docs/operate/erase.md"
        used |= names & decided
    assert used == decided


@rule("M45")
def test_a_word_is_not_searched_in_what_is_said_of_somebody_else(
    shop: Shop, connection: Connection
) -> None:
    names = ("Will", "1000")
    theirs = {name: shop.greet.enqueue(name, "dies").id for name in names}
    for name in names:
        shop.plain.enqueue(name)
    shop.app.drain()
    quote(shop, connection, "invoice 1000 will not be paid: line 4", "nobody@planted.example")
    for name, mine in theirs.items():
        before = contents(connection)
        assert shop.app.jobs.erase({"who": name}, why=WHY).jobs == 2
        assert shop.app.get(mine).last_error == "erased"
        after = contents(connection)
        for table in ("alert", "breaker"):
            assert after[table] == before[table], name
        for table in TABLES:
            ours = [row for row in before[table] if "invoice 1000" in row]
            assert ours and [row for row in after[table] if row in ours] == ours, (name, table)


@rule("M45")
def test_an_address_goes_from_what_is_said_of_somebody_else_and_the_rest_of_it_stays(
    shop: Shop, connection: Connection
) -> None:
    others = (
        "to nada@planted.example",
        "to x.ada@planted.example",
        "to ada@planted.example.org",
        "to ada@planted.example-2.org",
    )
    hers = {
        f"550 <{WHO.upper()}> unknown, x@y.example neither": "550 <erased> unknown, x@y.example",
        "GET /?to=ada%40planted.example&n=1: 404": "GET /?to=erased&n=1: 404",
        f"one\\n{WHO}. Bye": "one\\nerased. Bye",
        "href=%3Cada%40planted.example%3E": "href=%3Cerased%3E",
        f'"\\u003c{WHO}\\u003e"': '"\\u003cerased\\u003e"',
    }
    quote(shop, connection, *others, *hers)
    before = contents(connection)
    payload = {"nothing": 1, "contact": {"mail": f"Ada <{WHO}>"}}
    assert shop.app.jobs.erase(payload, why=WHY).jobs == 0
    after = contents(connection)
    for table, all_ in after.items():
        for text in others:
            assert [row for row in all_ if text in row] == [
                row for row in before[table] if text in row
            ]
            assert [row for row in all_ if text in row], table
        assert not [
            row
            for row in all_
            if WHO in row.replace("%40", "@").lower() and not any(text in row for text in others)
        ], table
    for table in ("job", "attempt", "breaker"):
        for text in hers.values():
            shown = text.replace("\\", "\\\\")
            assert [row for row in after[table] if shown in row], (table, text)
    [[why]] = rows(
        connection,
        "select resolution ->> 'why' from rota.job_history where resolution ->> 'why' like '550%%'",
    )
    assert why == "550 <erased> unknown, x@y.example neither"


@rule("M45")
def test_an_address_in_a_personal_argument_of_what_is_erased_is_searched_for(
    shop: Shop, connection: Connection
) -> None:
    def invoice(
        user: int,
        mail: rota.Personal[str],
        note: rota.Personal[str],
        more: rota.Personal[dict[str, str]],
        agent: str,
    ) -> None:
        """Do nothing."""

    invoice_: Any = shop.app.job(invoice)
    shop.app.sync()
    more = {"help": "help@x.example"}
    invoice_.enqueue(4, WHO, "call bob@x.example", more, "agent@x.example")
    shop.app.drain()
    others = ("to bob@x.example", "to agent@x.example", "to help@x.example")
    quote(shop, connection, f"to {WHO}", *others)
    assert shop.app.jobs.erase({"user": 4}, why=WHY).jobs == 1
    assert found(connection) == []
    for text in others:
        assert all(text in str(all_) for all_ in contents(connection).values()), text


@rule("M45")
def test_addresses_that_are_too_many_for_one_expression_are_all_searched_for(
    shop: Shop, connection: Connection
) -> None:
    quote(shop, connection, *(f"to p{number}@x.example" for number in (0, 99, 100, 249)))
    payload = {"to": [f"p{number}@x.example" for number in range(250)]}
    shop.app.jobs.erase(payload, why=WHY)
    assert "@x.example" not in str(contents(connection))


@rule("M45")
def test_a_job_that_the_database_does_not_let_erase_is_named_and_erased_by_the_next_call(
    shop: Shop, connection: Connection
) -> None:
    first, second, third = (shop.plain.enqueue(WHO).id for _ in range(3))
    shop.app.drain()
    keep = (
        "create function public.keep() returns trigger language plpgsql as $$ begin"
        f" if old.id = {second} then raise 'kept for the court'; end if; return new; end $$"
    )
    connection.execute(keep.encode())
    connection.execute(
        "create trigger keep before update on rota.job_history"
        " for each row execute function public.keep()"
    )
    erased = shop.app.jobs.erase(**ERASED)
    assert (erased.jobs, list(erased.refused)) == (2, [second])
    assert "kept for the court" in erased.refused[second]
    assert [table for table, _ in found(connection)] == ["job_history"]
    connection.execute("drop trigger keep on rota.job_history")
    erased = shop.app.jobs.erase(**ERASED)
    assert (erased.jobs, erased.refused) == (1, {})
    assert found(connection) == []
    assert {status(connection, job) for job in (first, second, third)} == {"succeeded"}


@rule("M52", "M45")
def test_an_effect_whose_erasure_commits_while_a_job_asks_for_it_stays_done(
    shop: Shop, connection: Connection, database: str
) -> None:
    first = shop.greeting("succeeds")
    shop.app.drain()
    shop.plain.enqueue("nobody")
    [(id_, claims)] = claim(connection, "plain")
    begin = "select state, result from rota.worker_effect_begin(%s, %s, %s)"
    ask = [id_, claims, f"greet:succeeds:{WHO}"]
    with (
        psycopg.connect(database) as eraser,
        psycopg.connect(database, autocommit=True) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        second.execute("select 1")
        eraser.execute("select rota.job_erase(%s, 'x')", [[first]])
        asked = pool.submit(second.execute, begin, ask)
        eventually(waits(connection, second), what="the effect waits for the erasure")
        eraser.commit()
        assert asked.result(30).fetchall() == [("done", None)]
    assert rows(connection, begin, *ask) == [("done", None)]
    connection.execute("update rota.effect set done_at = null")
    again = "select state from rota.worker_effect_begin(%s, %s, %s, 'repeat')"
    assert rows(connection, again, *ask) == [("begun",)]
    connection.execute("select rota.worker_effect_finish(%s, %s, %s, '7')", ask)
    assert rows(connection, begin, *ask) == [("done", 7)]
    shop.app.effects.resolve(ask[2], done=False, again=True)
    assert rows(connection, begin, *ask) == [("begun", None)]


@rule("M45")
def test_an_erasure_that_was_stopped_still_finds_the_chains_of_what_it_has_not_done(
    shop: Shop, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.ops.erase.ACTION_MAX", 1)
    died = shop.plain.using(meta={"asked_by": WHO}).enqueue(WHO).id
    shop.app.jobs.discard(died)
    shop.app.retry(died, payload={"who": "nobody"})
    shop.app.drain()
    stop = (
        "create function public.stop() returns trigger language plpgsql as $$ begin"
        f" if old.id > {died} then raise 'stop' using errcode = '57014'; end if; return new; end $$"
    )
    connection.execute(stop.encode())
    connection.execute(
        "create trigger stop before update on rota.job_history"
        " for each row execute function public.stop()"
    )
    with pytest.raises(rota.RotaError, match="stop"):
        shop.app.jobs.erase(**ERASED)
    connection.execute("drop trigger stop on rota.job_history")
    assert shop.app.jobs.erase(**ERASED).jobs == 2
    assert found(connection) == []


def test_an_erasure_needs_a_reason_without_the_value_and_one_thing_to_search(
    shop: Shop,
) -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"why": ""},
        {"why": f"{WHO} asked"},
        {"payload": None},
        {"job": 1},
        {"payload": {}},
    )
    for wrong in wrongs:
        with pytest.raises(UsageError):
            shop.app.jobs.erase(**{**ERASED, **wrong})


@rule("M45")
def test_an_earlier_job_with_another_payload_is_named_and_stays(
    shop: Shop, connection: Connection, database: str, tmp_path: Path
) -> None:
    first = shop.plain.enqueue("Bob").id
    shop.app.jobs.discard(first)
    second = shop.app.retry(first, payload={"who": WHO}).id
    shop.app.jobs.discard(second)
    third = shop.app.retry(second, payload={"who": "corrected"}).id
    shop.app.drain()
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    words = ("erase", "--payload", f"who={WHO}", "--why", WHY, "--yes")
    said = f"not erased, because they had another payload before they were retried: {first}\n"
    assert rota_.ok(*words).out == f"2 jobs erased\n{said}"
    payloads = [shop.app.get(id_).payload for id_ in (first, second, third)]
    assert payloads[0] == {"who": "Bob"}
    assert all("rota.erased" in payload for payload in payloads[1:])


@rule("M45")
def test_the_job_that_is_named_takes_its_retries_with_the_same_payload_along(
    shop: Shop, connection: Connection
) -> None:
    first = shop.plain.enqueue(WHO).id
    shop.app.jobs.discard(first)
    second = shop.app.retry(first).id
    shop.app.jobs.discard(second)
    third = shop.app.retry(second, payload={"who": "nobody"}).id
    assert shop.app.jobs.erase(job=second, why=WHY).jobs == 3
    assert found(connection) == []
    assert status(connection, third) == "cancelled"


@rule("M51", "M45")
def test_a_key_that_a_success_would_not_hold_is_free_after_an_erasure(shop: Shop) -> None:
    scopes: list[Any] = ["pending", "live"]
    brief = [
        shop.app.job(scope, unique=rota.Unique(lambda who: f"brief:{who}", scope=scope))(plain)
        for scope in scopes
    ]
    shop.app.sync()
    for job_type in brief:
        job_type.using(delay="1h").enqueue(WHO)
    assert shop.app.jobs.erase(**ERASED).jobs == 2
    assert [job_type.enqueue(WHO).created for job_type in brief] == [True, True]


@rule("M51", "M45")
def test_a_key_whose_hash_an_earlier_job_has_left_is_kept_by_the_next_erasure(
    shop: Shop, connection: Connection
) -> None:
    for _ in range(2):
        waits = shop.greeting("queued", delay="1h")
        assert shop.app.jobs.erase(job=waits, why=WHY).jobs == 1
        assert shop.greet.enqueue(WHO, "queued").id == waits
        connection.execute("update rota.idempotency set expires_at = now() - interval '1 second'")


@rule("M45")
def test_a_command_says_what_it_would_erase_and_needs_a_yes(
    shop: Shop, database: str, tmp_path: Path
) -> None:
    waits = shop.plain.enqueue(WHO).id
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database)
    said = rota_("erase", "--payload", f"who={WHO}", "--why", WHY)
    assert said.status == 1 and f"1 job to be erased: {waits}\n" in said.err
    assert "nothing is erased: stdin is not a terminal to confirm it; add --yes" in said.err
    assert shop.app.get(waits).payload == {"who": WHO}
    shop.plain.enqueue("1")
    said = rota_.ok("erase", "--payload", "who=1", "--why", WHY, "--yes")
    assert said.err == "0 jobs to be erased\n1 job found for --payload 'who=\"1\"'\n"
