"""A judge that cannot find anything guilty proves nothing.

Here promises of the chaos run are broken, above all those whose check is no simple SELECT.
"""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from chaos.figures import figures
from chaos.judge import CHECKS, judge, timeline
from rota.kinds import webhook
from tests.support.rules import rule

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "chaos" / "tables.sql"
PAGE = ROOT / "docs" / "project" / "reliability.md"

# Job 1 is lost once, uncharged, and then succeeds; job 2 is lost for good. Both in the minute
# before now, be that yesterday's last. Jobs 3 to 6 fare as job 1, but that 5 dies in its second
# attempt. 3, 4 and 5 had sent their message when they were lost; 6 had done the first of its steps.
SOUND: LiteralString = """
select rota.partition_ensure(name, (now() at time zone 'UTC')::date + days)
  from unnest(array['attempt', 'job_history']) name, generate_series(-1, 1) days;
alter table rota.job disable trigger note_change;
insert into rota.job_type (name, max_attempts, on_lost)
  values ('quick', 3, 'retry'), ('once', 1, 'retry'), ('dead_when_lost', 3, 'dead'),
  ('send_skip', 3, 'retry'), ('send_repeat', 3, 'retry'), ('send_dead', 3, 'retry'),
  ('three_steps', 3, 'retry');
insert into rota.job_history (id, queue, job_type, payload, status, priority, attempts, claims,
  losses, locked_by, idempotency_key, run_at,
    created_at, updated_at, finished_at, release)
  values (1, 'default', 'quick', '{"n": 1}', 'succeeded', 0, 1, 3, 1, 'h:102:b', 'chaos:1', now(),
    now(), now(), now() - interval '1 second', 'r0');
insert into rota.job_history (id, queue, job_type, payload, status, priority, attempts, claims,
  losses, locked_by, run_at, created_at, updated_at, finished_at, release)
  select id, 'default', job_type, jsonb_build_object('n', id), 'succeeded', 0, 1, 3, 1, 'h:102:b',
    now(), now(), now(), now() - interval '1 second', 'r0'
  from (values (3, 'send_skip'), (4, 'send_repeat'), (6, 'three_steps')) h(id, job_type);
select rota.ids_reserve(6);
insert into rota.job (id, queue, job_type, payload, status, priority, attempts, claims, losses,
  start_recorded)
  values (2, 'default', 'once', '{"n": 2}', 'dead', 0, 1, 2, 1, true),
  (5, 'default', 'send_dead', '{"n": 5}', 'dead', 0, 1, 4, 1, true);
insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome, error_type)
  values
  (1, 1, 1, 'quick', 'h:101:a', now() - interval '20 s', 'queued', 'LeaseExpired'),
  (2, 1, 1, 'once', 'h:101:a', now() - interval '20.1 s', 'dead', 'LeaseExpired');
insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, release, outcome,
  error_type, message)
  values (5, 3, 1, 'send_dead', 'h:102:b', now() - interval '1 s', 'r0', 'dead', 'Dead',
    'effect ''send_dead:0'' may have happened 27 seconds ago, in job 5; look there');
insert into chaos.ordered (tag, job, way) values (1, 1, 'one by one'), (2, 2, 'in a transaction');
insert into chaos.ordered (tag, job, way)
  select id, id, 'one by one' from generate_series(3, 6) id;
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
insert into chaos.change (job, at, role, was_status, status, was_claims, claims, was_worker,
  worker, was_attempts, attempts, was_losses, losses, was_recorded, recorded)
  select id, at, role, was_status,
    case when id = 5 then coalesce(status, 'dead') else status end,
    was_claims, case when id = 5 then coalesce(claims, 4) else claims end, was_worker, worker,
    was_attempts, attempts, was_losses, losses, was_recorded, recorded
  from chaos.change, generate_series(3, 6) id where job = 1 order by id, seq;
insert into chaos.witness (said, job, claim, at_s, worker, how)
  select said, job, claim, extract(epoch from now()) - ago, worker, how
  from (values ('start', 1, 1, 29.0, 'h:101:a', ''), ('start', 1, 3, 8, 'h:102:b', ''),
    ('end', 1, 3, 2, 'h:102:b', 'returned'),
    ('start', 2, 1, 28, 'h:101:a', ''), ('message', 3, 1, 28, 'h:101:a', 'send_skip:0'),
    ('done', 3, 3, 3, 'h:102:b', 'send_skip:0'), ('message', 4, 1, 28, 'h:101:a', 'send_repeat:0'),
    ('message', 4, 3, 4, 'h:102:b', 'send_repeat:0'), ('done', 4, 3, 3, 'h:102:b', 'send_repeat:0'),
    ('message', 5, 1, 28, 'h:101:a', 'send_dead:0'), ('step', 6, 1, 28, 'h:101:a', 'reserve'),
    ('done', 6, 1, 27.5, 'h:101:a', 'reserve'), ('done', 6, 3, 7, 'h:102:b', 'reserve'),
    ('step', 6, 3, 6, 'h:102:b', 'charge'), ('done', 6, 3, 5, 'h:102:b', 'charge'),
    ('step', 6, 3, 4, 'h:102:b', 'ship'), ('done', 6, 3, 3, 'h:102:b', 'ship'))
    w(said, job, claim, ago, worker, how);
insert into chaos.witness (said, job, claim, at_s, worker, how)
  select said, id, claim, at_s, worker, how from chaos.witness, generate_series(3, 6) id
  where job = 1;
insert into rota.effect (key, origin_id, place, job, claim, entry, if_uncertain, uncertain_before,
  intended_at, done_at, result)
  select key, case when place is null then 0 else job end, place, job, claim, coalesce(place, 1),
    if_uncertain, before, now() - interval '28.5 s',
    now() - done_ago * interval '1 s', case when done_ago is not null then to_jsonb(claim) end
  from (values ('send_skip:0', null, 3, 1, 'skip', 0, null), ('send_repeat:0', null, 4, 3, 'repeat',
    1, 3.5), ('send_dead:0', null, 5, 1, 'dead', 0, null), ('reserve', 1, 6, 1, 'repeat', 0, 27.7),
    ('charge', 2, 6, 3, 'repeat', 0, 5.5), ('ship', 3, 6, 3, 'repeat', 0, 3.5))
    e(key, place, job, claim, if_uncertain, before, done_ago);
insert into chaos.run (job, claim, worker) values (1, 1, 'h:101:a'), (1, 3, 'h:102:b');
insert into chaos.process (pid, release, began_at_s, how, code)
  values (101, 'r0', 0, 'killed', -9), (102, 'r0', 0, 'told to stop', 0);
insert into chaos.silence (pid, since_s) select 101, extract(epoch from now()) - 27;
"""
# Jobs 7 and 8 are of one lane and of a type with a cap, one after the other; 9 to 12 start within
# 11 s at a limit of one in a second. Job 13 starts before its breaker opens; 14 is the trial.
SOUND_ORDER: LiteralString = """
insert into rota.job_type (name, max_attempts, max_running, on_dead)
  values ('in_order', 3, 1, 'continue'), ('limited', 3, null, 'continue'),
  ('guarded', 3, null, 'continue'),
  ('halting', 3, null, 'halt');
insert into rota.job_history (id, queue, job_type, payload, status, priority, attempts, claims,
  locked_by, run_at, created_at, updated_at, finished_at, release)
  select id, 'narrow', job_type, '{"n": 2}', 'succeeded', 0, 1, 1, 'h:102:b', now(), now(), now(),
    now() - interval '1 second', 'r0'
  from (values (7, 'in_order'), (8, 'in_order'), (9, 'limited'), (10, 'limited'), (11, 'limited'),
    (12, 'limited'), (13, 'guarded'), (14, 'guarded')) h(id, job_type);
select rota.ids_reserve(14);
insert into chaos.ordered (tag, job, way) select id, id, 'in bulk' from generate_series(7, 14) id;
insert into chaos.change (job, at, role, status, claims, attempts, job_type, queue, group_key,
  priority, run_at)
  select id, now() - interval '40 s', 'rota client', 'queued', 0, 0,
    case when id < 9 then 'in_order' when id < 13 then 'limited' else 'guarded' end, 'narrow',
    case when id < 9 then 'serial:1' end, 0, now() - interval '40 s' + id * interval '1 ms'
  from generate_series(7, 14) id;
insert into chaos.change (job, at, role, was_status, status, was_claims, claims, was_worker,
  worker, was_attempts, attempts, job_type, queue, group_key, was_priority, priority, was_run_at,
  run_at, was_in_lane, in_lane, capped)
  select c.job, now() - t.ago * interval '1 s', role, t.was_status, t.status, t.was_claims,
    t.claims, t.was_worker, t.worker, t.was_attempts, t.attempts, job_type, queue, group_key, 0, 0,
    run_at, run_at,
    case when t.was_status = 'running' and job < 9 then true end,
    case when t.status = 'running' and job < 9 then true end,
    case when t.status = 'running' and job < 9 then true end
  from chaos.change c
  join (values (7, 20), (8, 18), (9, 30), (10, 27), (11, 23), (12, 19), (13, 31), (14, 16))
    taken(id, ago) on taken.id = c.job
  cross join lateral (values
    (taken.ago + 0.0, 'queued', 'running', 0, 1, null, 'h:102:b', 0, 1),
    (taken.ago - 1.0, 'running', null, 1, null, 'h:102:b', null, 1, null))
    t(ago, was_status, status, was_claims, claims, was_worker, worker, was_attempts, attempts)
  order by taken.ago desc, t.ago desc;
insert into chaos.witness (said, job, claim, at_s, worker, how)
  select said, job, 1, extract(epoch from now()) - ago, 'h:102:b', how
  from (values (7, 20), (8, 18), (9, 30), (10, 27), (11, 23), (12, 19), (13, 31), (14, 16))
    taken(job, taken_ago)
  cross join lateral (values ('start', taken_ago - 0.1, ''), ('end', taken_ago - 0.9, 'returned'))
    w(said, ago, how);
insert into chaos.run (job, claim, worker) select id, 1, 'h:102:b' from generate_series(7, 14) id;
update chaos.change set xid = seq::text::xid8, asked_at = at;  -- each in a transaction of its own
truncate chaos.cap, chaos.pace;
insert into chaos.cap (at, queue, max_running) values (now() - interval '50 s', 'narrow', 9);
insert into chaos.pace (at, name, starts, per, burst)
  values (now() - interval '50 s', 'limited', 1, '1 s', 1);
insert into chaos.breaker (at, key, was_state, state, opened_at, was_open_until, open_until,
  trial_job, trial_claim) values
  (now() - interval '30 s', 'host0', null, 'open', now() - interval '30 s', null,
    now() - interval '20 s', null, null),
  (now() - interval '16 s', 'host0', 'open', 'trial', now() - interval '30 s',
    now() - interval '20 s', now() + interval '1 h', 14, 1),
  (now() - interval '15 s', 'host0', 'trial', 'closed', null, null, null, null, null);
"""
BREAKS: dict[str, LiteralString] = {
    "no job is lost: every committed job exists": "delete from rota.job",
    "no job exists twice, and no key has two jobs": """
        insert into rota.job (id, queue, job_type, payload, status, priority)
          values (1, 'default', 'quick', '{"n": 1}', 'dead', 0)""",
    "no attempt starts while another claim holds the lease": (
        "update chaos.witness set at_s = at_s + 25 where job = 1 and claim = 1"
    ),
    "no attempt starts after its claim has ended": (
        "update chaos.witness set at_s = at_s + 10 where job = 1 and claim = 1"
    ),
    "every move out of running increases the claim number": (
        "update chaos.change set claims = 1 where job = 2 and status = 'dead'"
    ),
    "nothing is written for a dead or frozen worker": (
        "update chaos.change set role = 'rota finish' where job = 2 and status = 'dead'"
    ),
    "no job starts more often than max_attempts plus one, but for losses beside other suspects": """
        insert into chaos.witness select 'start', 1, 3, 1, 'h:102:b', ''
          from generate_series(1, 3)""",
    "no attempt is charged that never started": """
        delete from chaos.witness where job = 2; update chaos.change set was_recorded = false
          where job = 2 and was_recorded""",
    "the first loss of a job is not charged, unless its start was recorded": (
        "update chaos.change set attempts = 1 where job = 1 and status = 'queued'"
    ),
    "no message is sent twice whose effect says 'skip' or 'dead'": (
        "update chaos.witness set said = 'message' where said = 'done' and job = 3"
    ),
    "nothing is done again by an attempt that began after its effect or step was done": (
        "update chaos.witness set said = 'step' where how = 'reserve' and claim = 3"
    ),
    "an effect or step that a handler saw done stays done, with the result of its attempt": (
        "update rota.effect set done_at = null where key = 'charge'"
    ),
    "an effect or step that is done has happened, in the attempt that is named": (
        "update rota.effect set job = 3 where key = 'send_repeat:0'"
    ),
    "a job succeeds only if its effect is done, or is uncertain and says 'skip'": (
        "update rota.effect set done_at = null where key = 'send_repeat:0'"
    ),
    "a job succeeds only if its steps are done, and they were done in order": (
        "delete from rota.effect where key = 'ship'"
    ),
    "a job that waited for others goes on when all have ended": """
        update rota.job_history set job_type = 'assemble' where id = 1;
        update rota.job_history set job_type = 'piece', payload = '{"of": 1}' where id = 3;
        insert into chaos.change (job, was_status, status, was_claims, claims)
          values (1, 'running', 'waiting', 1, 2)""",
    "a job that waited for others goes on with their results, and enqueues each once": """
        update rota.job_history set job_type = 'assemble', result = '{"pieces": 1, "sum": 0}'
          where id = 1""",
    "never more jobs of a lane run at once than its capacity": (
        "delete from chaos.change where job = 7 and status is null"
    ),
    "never more handlers of a lane run at once than its capacity, but after a lost lease": (
        "update chaos.witness set at_s = at_s + 3 where job = 7 and said = 'end'"
    ),
    "never more jobs of a lane hold a place than its capacity, and only those run": (
        "update chaos.change set was_in_lane = null where job = 7 and status is null"
    ),
    "no job takes a place of its lane before another that was due and known, and comes first": """
        update chaos.change set was_run_at = now() where job = 7 and status = 'running';
        update chaos.change c set at = p.at - interval '0.5 s', snapshot = pg_current_snapshot()
          from chaos.place p where p.job = 7 and c.job = 12 and c.status is null""",
    "no place of a lane and no slot of a cap is left over": (
        "update rota.job set group_key = 'serial:1', in_lane = true where id = 2"
    ),
    "never more jobs run at once than the cap of their type": (
        "delete from chaos.change where job = 7 and status is null"
    ),
    "no job is claimed beyond the cap of its queue, also after it has been changed": """
        delete from chaos.change where job = 7 and status is null;
        insert into chaos.cap (at, queue, max_running)
          select taken_at - interval '13 s', 'narrow', 1 from chaos.claim where job = 7""",
    "a limited key never starts more than limit plus burst in any window": (
        "update chaos.witness set at_s = (select max(at_s) from chaos.witness where job = 12) "
        "where said = 'start' and job in (10, 11, 12)"
    ),
    "while a breaker has been open for a second, no job of its key is claimed but the trial": (
        "update chaos.change set at = at + interval '5 s' where job = 13 and status = 'running'"
    ),
    "a breaker has one trial at a time": """
        insert into chaos.breaker (key, at, was_state, state, was_open_until, was_trial_job,
          was_trial_claim, trial_job, trial_claim)
        select 'host0', taken_at + interval '0.5 s', 'trial', 'trial', now(), 14, 1, 13, 1
          from chaos.claim where job = 14""",
}

OTHER_BREAKS: list[tuple[str, LiteralString]] = [
    (
        "nothing is done again by an attempt that began after its effect or step was done",
        """
        update rota.effect set done_at = now() where key = 'reserve';
        update chaos.witness set said = 'step' where how = 'reserve' and claim = 3""",
    ),
    (
        "an effect or step that a handler saw done stays done, with the result of its attempt",
        "update rota.effect set result = '1' where key = 'ship'",
    ),
    (
        "an effect or step that a handler saw done stays done, with the result of its attempt",
        "update rota.effect set claim = 1 where key = 'send_repeat:0'",
    ),
    (
        "a job succeeds only if its effect is done, or is uncertain and says 'skip'",
        "delete from rota.effect where key = 'send_skip:0'",
    ),
    (
        "a job succeeds only if its steps are done, and they were done in order",
        "update rota.effect set done_at = now() where key = 'charge'",
    ),
    (
        "a job succeeds only if its steps are done, and they were done in order",
        """
        update rota.attempt set message = 'the steps are in another order than in an earlier'
          where outcome = 'dead' and job = 5""",
    ),
    (
        "never more jobs of a lane hold a place than its capacity, and only those run",
        "update chaos.change set in_lane = null where job = 8",
    ),
    (
        "while a breaker has been open for a second, no job of its key is claimed but the trial",
        "update chaos.breaker set trial_job = 13 where state = 'trial'",
    ),
]
"""Other ways in which a promise of more than one part is broken."""


@pytest.fixture
def court(database: str, connection: psycopg.Connection[TupleRow]) -> psycopg.Connection[TupleRow]:
    """A database with a run in which nothing went wrong."""
    rota.App(database, jobs=[webhook.Webhooks().jobs]).migrate()
    connection.execute(TABLES.read_bytes())
    connection.execute(SOUND)
    connection.execute(SOUND_ORDER)
    return connection


@rule("M2")
def test_a_sound_run_is_found_sound(court: psycopg.Connection[TupleRow]) -> None:
    assert judge(court) == []
    found = dict(figures(court))
    assert (found["jobs"], found["starts"], found["reaped"], found["reaped, charged"]) == (
        14,
        19,
        6,
        1,
    )
    assert (found["messages"], found["messages sent again"], found["uncertain, dead"]) == (4, 1, 1)
    assert [line.split()[1] for line in timeline(court, 2)] == [
        *("row", "row", "row", "handler", "villain", "attempt", "row")
    ], "what became of a job, in the order of time"


@pytest.mark.nightly
@rule("M2")
def test_a_broken_promise_is_found(court: psycopg.Connection[TupleRow]) -> None:
    selects = {check.what: check.select for check in CHECKS}
    missed = []
    for what, statement in [*BREAKS.items(), *OTHER_BREAKS]:
        with court.transaction(force_rollback=True):
            court.execute(statement)
            if not court.execute(selects[what]).fetchall():
                missed.append((what, statement))
    assert missed == []


def test_the_reliability_page_names_every_promise() -> None:
    page = PAGE.read_text()
    assert [check.what for check in CHECKS if f"\n- {check.what}\n" not in page] == []
