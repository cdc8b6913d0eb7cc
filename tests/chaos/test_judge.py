"""A judge that cannot find anything guilty proves nothing: each promise of the chaos run is broken
here once.
"""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.rows import TupleRow

from chaos.figures import figures
from chaos.judge import CHECKS, judge, timeline
from tests.support.rules import rule

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "chaos" / "tables.sql"
PAGE = ROOT / "docs" / "reliability.md"

# Job 1 is lost once, uncharged, and then succeeds; job 2 is lost for good. Both in the minute
# before now, be that yesterday's last.
SOUND: LiteralString = """
select rota.partition_ensure(name, (now() at time zone 'UTC')::date + days)
  from unnest(array['attempt', 'job_history']) name, generate_series(-1, 1) days;
alter table rota.job disable trigger note_change;
insert into rota.job_type (name, max_attempts, on_lost)
  values ('quick', 3, 'retry'), ('once', 1, 'retry'), ('dead_when_lost', 3, 'dead');
insert into rota.job_history (id, queue, job_type, payload, status, priority, attempts, claims,
  losses, locked_by, idempotency_key, run_at,
    created_at, updated_at, finished_at, release)
  values (1, 'default', 'quick', '{"n": 1}', 'succeeded', 0, 1, 3, 1, 'h:102:b', 'chaos:1', now(),
    now(), now(), now() - interval '1 second', 'r0');
select rota.job_reserve(2);
insert into rota.job (id, queue, job_type, payload, status, priority, attempts, claims, losses,
  start_recorded)
  values (2, 'default', 'once', '{"n": 2}', 'dead', 0, 1, 2, 1, true);
insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome, error_type)
  values
  (1, 1, 1, 'quick', 'h:101:a', now() - interval '20 s', 'queued', 'LeaseExpired'),
  (2, 1, 1, 'once', 'h:101:a', now() - interval '20.1 s', 'dead', 'LeaseExpired');
insert into chaos.ordered (tag, job, way) values (1, 1, 'one by one'), (2, 2, 'in a transaction');
insert into chaos.sale (tag) values (2);
insert into chaos.change (job, at, role, was_status, status, was_claims, claims, was_worker,
  worker, was_attempts, attempts, was_losses, losses,
  was_recorded, recorded) values
  (1, now() - interval '31 s', 'rota client', null, 'queued', null, 0, null, null, null, 0, null,
    null, null, null),
  (1, now() - interval '30 s', 'rota claim', 'queued', 'running', 0, 1, null, 'h:101:a', 0, 1,
    null, null, null, null),
  (1, now() - interval '20 s', 'rota upkeep', 'running', 'queued', 1, 2, 'h:101:a', null, 1, 0,
    null, 1, null, null),
  (1, now() - interval '10 s', 'rota claim', 'queued', 'running', 2, 3, null, 'h:102:b', 0, 1, 1,
    1, null, false),
  (1, now() - interval '9 s', 'rota start', 'running', 'running', 3, 3, 'h:102:b', 'h:102:b', 1, 1,
    1, 1, false, true),
  (1, now() - interval '1 s', 'rota finish', 'running', null, 3, null, 'h:102:b', null, 1, null, 1,
    null, true, null),
  (2, now() - interval '31 s', 'rota client', null, 'queued', null, 0, null, null, null, 0, null,
    null, null, null),
  (2, now() - interval '30 s', 'rota claim', 'queued', 'running', 0, 1, null, 'h:101:a', 0, 1,
    null, null, null, false),
  (2, now() - interval '29 s', 'rota start', 'running', 'running', 1, 1, 'h:101:a', 'h:101:a', 1,
    1, null, null, false, true),
  (2, now() - interval '20 s', 'rota upkeep', 'running', 'dead', 1, 2, 'h:101:a', null, 1, 1, null,
    1, true, true);
insert into chaos.witness (said, job, claim, at_s, worker, how)
  select said, job, claim, extract(epoch from now()) - ago, worker, how
  from (values ('start', 1, 1, 29, 'h:101:a', ''), ('start', 1, 3, 8, 'h:102:b', ''), ('end', 1, 3,
    2, 'h:102:b', 'returned'),
    ('start', 2, 1, 28, 'h:101:a', '')) w(said, job, claim, ago, worker, how);
insert into chaos.run (job, claim, worker) values (1, 1, 'h:101:a'), (1, 3, 'h:102:b');
insert into chaos.process (pid, release, began_at_s, how, code)
  values (101, 'r0', 0, 'killed', -9), (102, 'r0', 0, 'told to stop', 0);
insert into chaos.silence (pid, since_s) select 101, extract(epoch from now()) - 27;
"""
BREAKS: dict[str, LiteralString] = {
    "every job has ended": "update rota.job set status = 'queued'",
    "no job is lost: every committed job exists": "delete from rota.job",
    "no job is invented: no job exists that was rolled back or refused": (
        "delete from chaos.ordered where tag = 1"
    ),
    "no job exists twice, and no key has two jobs": """
        insert into rota.job (id, queue, job_type, payload, status, priority)
          values (1, 'default', 'quick', '{"n": 1}', 'dead', 0)""",
    "a job and the rows of its transaction exist together or not at all": "delete from chaos.sale",
    "what a handler commits with its job's success exists once, and only with the success": (
        "insert into chaos.invoice values (2)"
    ),
    "a worker starts only jobs that it has claimed": (
        "update chaos.witness set worker = 'h:102:b' where job = 2"
    ),
    "a claim starts its job at most once": (
        "insert into chaos.witness select * from chaos.witness where said = 'start' and job = 2"
    ),
    "no attempt starts while another claim holds the lease": (
        "update chaos.witness set at_s = at_s + 25 where job = 1 and claim = 1"
    ),
    "no attempt starts after its claim has ended": (
        "update chaos.witness set at_s = at_s + 10 where job = 1 and claim = 1"
    ),
    "a claim ends once": """
        insert into chaos.change (job, role, was_status, status, was_claims, claims, was_worker)
        values (2, 'rota finish', 'running', 'failed', 1, 2, 'h:101:a')""",
    "every move out of running increases the claim number": (
        "update chaos.change set claims = 1 where job = 2 and status = 'dead'"
    ),
    "a succeeded job was ended by its last claim": (
        "update rota.job_history set locked_by = 'h:101:a'"
    ),
    "for every success the handler of the same claim returned": (
        "update chaos.witness set claim = 1 where said = 'end'"
    ),
    "every recorded failure belongs to an attempt of the same claim": (
        "update rota.attempt set worker = 'h:102:b' where job = 2"
    ),
    "nothing is written for a dead or frozen worker": (
        "update chaos.change set role = 'rota finish' where job = 2 and status = 'dead'"
    ),
    "no job starts more often than max_attempts plus one": """
        insert into chaos.witness select 'start', 1, 3, 1, 'h:102:b', ''
          from generate_series(1, 3)""",
    "a job with one attempt starts at most once": (
        "insert into chaos.witness select said, job, 3, at_s, worker, how from chaos.witness where "
        "job = 2"
    ),
    "a job with on_lost='dead' does not start again after its worker was lost": (
        "update rota.job_history set job_type = 'dead_when_lost'"
    ),
    "no job is dead that never started": """
        delete from chaos.witness where job = 2; update chaos.change set was_recorded = false
          where job = 2 and was_recorded""",
    "no attempt is charged that never started": """
        delete from chaos.witness where job = 2; update chaos.change set was_recorded = false
          where job = 2 and was_recorded""",
    "the first loss of a job is not charged, unless its start was recorded": (
        "update chaos.change set attempts = 1 where job = 1 and status = 'queued'"
    ),
    "the handlers' table agrees with their files": ("update chaos.run set worker = 'h:101:a'"),
    "no worker ends unasked, and every stopped worker exits with 0 or 5": (
        "update chaos.process set code = 1 where pid = 102"
    ),
}


@pytest.fixture
def court(connection: psycopg.Connection[TupleRow]) -> psycopg.Connection[TupleRow]:
    """A database with a run in which nothing went wrong."""
    connection.execute(TABLES.read_bytes())
    connection.execute(SOUND)
    return connection


@rule("M2")
def test_a_sound_run_is_found_sound(court: psycopg.Connection[TupleRow]) -> None:
    assert judge(court) == []
    found = dict(figures(court))
    assert (found["jobs"], found["starts"], found["reaped"], found["reaped, charged"]) == (
        2,
        3,
        2,
        1,
    )


def test_every_promise_is_broken_here_once() -> None:
    assert list(BREAKS) == [check.what for check in CHECKS]


def test_the_reliability_page_names_every_promise() -> None:
    page = PAGE.read_text()
    assert [check.what for check in CHECKS if f"\n- {check.what}\n" not in page] == []


def test_each_broken_promise_is_found(court: psycopg.Connection[TupleRow]) -> None:
    found = {}
    for what, statement in BREAKS.items():
        with court.transaction(force_rollback=True):
            court.execute(statement)
            found[what] = [broken.check.what for broken in judge(court)]
    assert [what for what in BREAKS if what not in found[what]] == []


def test_the_timeline_of_a_job_is_in_order(court: psycopg.Connection[TupleRow]) -> None:
    lines = timeline(court, 2)
    assert [line.split()[1] for line in lines] == [
        "row",
        "row",
        "row",
        "handler",
        "villain",
        "attempt",
        "row",
    ]
