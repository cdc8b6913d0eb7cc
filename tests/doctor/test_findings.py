"""What each check says of the tables: a step changes them, and the check is asked."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level
from rota.store.db import Database
from tests.doctor.test_doctor import NOON, at_work
from tests.store.planned import set_clock
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

OK, WARN, BAD, SKIPPED = Level.OK, Level.WARN, Level.BAD, Level.SKIPPED
JOB = "insert into rota.job (job_type, queue, priority, {}) select 't', 'default', 0, {} "
TYPO = "insert into rota.job (job_type, run_at) select 'send_welcom_email', rota.clock() + "
HELD = "insert into rota.job (job_type, waits_for, waits_since, {}) select 't', {}, {}"
SEALED = """'{"token": {"sealed": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "key": "k7"}}'"""
LIMIT = "insert into rota.rate_limit (name, starts, per, burst) values ('{}', {}, '1 minute', 1)"
EFFECT = (
    "insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at) "
    "values ('{}', 7, 1, 1, '{}', rota.clock() - interval '{} days')"
)
MANY_EFFECTS = """
insert into rota.effect (key, job, claim, entry, if_uncertain, intended_at)
select 'skip:' || n, 7, 1, 1, 'skip', rota.clock() - interval '9 days'
from generate_series(1, 10000) n;"""
MANY_KEYS = """
with live as (insert into rota.job (job_type) values ('t') returning id)
insert into rota.idempotency (job_type, key, job)
select 't', n, id + n / 10001 from live, generate_series(1, 10001) n"""
"""All of a live job but the last one, and one more than are read."""
RESET = """
delete from rota.job; delete from rota.queue; delete from rota.worker; delete from rota.job_type;
delete from rota.effect; delete from rota.breaker; delete from rota.rate_limit_key;
delete from rota.rate_limit; delete from rota.batch_delta; delete from rota.idempotency"""

STEPS: dict[str, list[tuple[str, Level, str]]] = {
    "types": [
        (TYPO + "interval '1 day'", WARN, "did you mean send_welcome_email?"),
        (
            TYPO + "interval '0' from generate_series(1, 3)",
            BAD,
            "send_welcom_email (4 jobs, not declared): did you mean send_welcome_email?",
        ),
        (
            "delete from rota.job; update rota.worker set job_types = '{other}'; "
            "insert into rota.job (job_type) values ('t')",
            BAD,
            "t (1 job, no worker knows it)",
        ),
    ],
    "queues": [("insert into rota.job (job_type, queue) values ('t', 'emails')", BAD, "'emails'")],
    "workers": [
        (
            "update rota.worker set heartbeat_at = heartbeat_at - interval '2 minutes'",
            WARN,
            "gone within the hour: hand (silent for 2 min)",
        ),
        ("insert into rota.job (job_type) values ('t')", BAD, "no worker is alive"),
        # A drain comes each minute.
        ("update rota.worker set stopped_at = rota.clock()", OK, ""),
    ],
    "fences": [("update rota.worker set rejected = 2", WARN, "hand: 2")],
    "refusals": [
        ("update rota.worker set refused = 'no key', refused_since = rota.clock()", OK, ""),
        (
            "update rota.worker set refused_since = refused_since - interval '2 min'",
            BAD,
            "hand, for 2 min: no key",
        ),
    ],
    "running": [
        (
            JOB.format("status, locked_by, locked_until, started_at", "'running', 'w', now, ago")
            + "from (values (rota.clock() + interval '1 minute', rota.clock() - interval '7 min')) "
            "v(now, ago)",
            WARN,
            "t for 7 min (timeout 5 min)",
        ),
        ("update rota.job set timeout = '8 minutes'", OK, ""),
        (
            "update rota.job set locked_until = rota.clock() - interval '2 minutes'",
            BAD,
            "t (2 min)",
        ),
    ],
    "oldest": [
        ("insert into rota.job (job_type) values ('t')", OK, ""),
        ("update rota.job set run_at = rota.clock() - interval '6 minutes'", WARN, "6 min"),
        ("update rota.job set run_at = rota.clock() - interval '2 hours'", BAD, "2 h"),
        (
            "update rota.worker set stopped_at = rota.clock() - interval '7 min'",
            BAD,
            "no live worker serves 'default' (its last one stopped 7 min ago)",
        ),
    ],
    "dead": [
        (
            JOB.format("status, failed_at", "'dead', rota.clock() - interval '3 days'"),
            WARN,
            "1 dead job, the oldest for 3 d",
        )
    ],
    "effects": [
        (EFFECT.format("push:1", "skip", 0), OK, "their policy asks no operator to look"),
        (
            EFFECT.format("mail:1", "dead", 1) + ";" + EFFECT.format("it''s", "dead", 3),
            WARN,
            "3 effects may or may not have happened, 2 of them waiting for an operator: the oldest "
            'is "it\'s" of job 7, for 3 d',
        ),
        ("update rota.effect set done_at = rota.clock()", OK, ""),
        (  # One is seen behind many that wait for nobody.
            MANY_EFFECTS + EFFECT.format("mail:2", "dead", 1),
            WARN,
            "≥ 10,000 effects may or may not have happened, 1 of them waiting for an operator: the "
            "oldest is 'mail:2' of job 7, for 1 d",
        ),
    ],
    "keys": [
        ("insert into rota.job (job_type, idempotency_key) values ('t', 'order:1'||E'\\x1b')",
            OK, ""),
        ("delete from rota.job where idempotency_key is not null", WARN, "left 1 idempotency key"),
        ("delete from rota.idempotency;" + MANY_KEYS, OK, "none of the 10,000 oldest"),
        ("delete from rota.job", WARN, "≥ 10,000 idempotency keys"),
    ],
    "priority": [
        ("""update rota.worker set queues = '{"default": null, "mail": 1}', slots = 10""", OK, ""),
        (
            "insert into rota.job (job_type, queue, priority) values ('t', 'mail', 1)",
            WARN,
            "'mail' (1 worker of one slot)",
        ),
        # Nothing in its queue is urgent.
        ("""update rota.worker set queues = '{"default": null}', slots = 1""", OK, ""),
        ("update rota.job_type set priority = 5 where name = 't'", WARN, "'default' (1 worker"),
        ("update rota.worker set slots = null", OK, ""),  # a worker in SQL
        ("update rota.worker set slots = 2", OK, ""),
    ],
    "secrets": [
        ("select rota.worker_declare('charge', secret_fields => '{token}')", OK, ""),
        (
            f"insert into rota.job (job_type, payload) values ('charge', {SEALED})",
            BAD,
            "k7: 1 job",
        ),
        ("update rota.worker set secret_keys = '{k7}'", OK, ""),
        ("update rota.job set waits_for = 'key k7' where job_type = 'charge'", WARN, "k7: 1 job"),
    ],
    "groups": [
        (
            HELD.format(
                "status, group_key, in_lane, failed_at",
                "'person', rota.clock() - interval '5 minutes'",
                "'dead', 'invoice:42', true, rota.clock()",
            ),
            BAD,
            "1 ordered group is halted by a dead job: 'invoice:42' by job ",
        )
    ],
    "concurrency": [
        (
            HELD.format("status", "'type report', rota.clock() - interval '9 min'", "'waiting'"),
            OK,
            "",
        ),
        (
            "update rota.job set waits_since = waits_since - interval '2 minutes'",
            WARN,
            "type report: 1 job, for 11 min",
        ),
    ],
    "limits": [
        (LIMIT.format("smtp", 100), OK, ""),
        (
            HELD.format("run_at", "'limit smtp a', rota.clock()", "rota.clock() + '50 min'"),
            OK,
            "",
        ),
        (
            HELD.format("run_at", "'limit smtp b', rota.clock()", "rota.clock() + '90 min'"),
            WARN,
            "limit smtp b: 1 job",
        ),
        (
            "delete from rota.rate_limit",
            WARN,
            "no row in rota.rate_limit: limit smtp a: 1 job",
        ),
    ],
    "fast-limits": [
        (LIMIT.format("unused", 300_000), OK, ""),
        (LIMIT.format("smtp", 100) + "; select rota.worker_limit_take('smtp', null, 1)", OK, ""),
        (
            LIMIT.format("api", 300_000) + "; select rota.worker_limit_take('api', 'anna', 1)",
            WARN,
            "1 rate limit is faster than one key carries: api (5,000 a second)",
        ),
        ("update rota.rate_limit_key set updated_at = rota.clock() - '2 h'::interval", OK, ""),
    ],
    "fan-out": [
        (
            "insert into rota.batch_delta (batch, succeeded) "
            "select 1, 1 from generate_series(1, 100000)",
            WARN,
            "100,000 changes of batches or more are not counted yet",
        )
    ],
    "breakers": [
        (
            "insert into rota.breaker (name, key, state, opened_at, reason) values "
            "('charge', 'a.example', 'open', rota.clock() - interval '14 minutes', 'timeout'), "
            "('charge', 'b.example', 'closed', null, null)",
            OK,
            "",
        ),
        (
            "update rota.breaker set opened_at = opened_at - interval '2 minutes'",
            WARN,
            "charge a.example for 16 min (timeout)",
        ),
    ],
}  # fmt: skip


@rule("M3", "M12", "M33", "M44", "M45", "M52", "M60", "M61", "M62", "M63", "M85", "M86")
@pytest.mark.parametrize("half", [0, 1])
def test_a_check_says_what_is_the_matter_and_nothing_where_nothing_is(
    database: str, connection: Connection, half: int
) -> None:
    set_clock(connection, NOON)
    for check, steps in list(STEPS.items())[half::2]:
        connection.execute(RESET)
        at_work(connection)
        for statement, level, said in steps:
            connection.execute(statement.encode())
            found = examine(Database(database), only=[check])[check]
            assert found.level is level, (check, statement, found)
            assert said in found.what and found.what.isprintable(), (check, statement, found)
            assert found.what_to_do or level is OK, (check, statement, found)
