"""The promises that must hold at the end, each as a SELECT of the rows that break it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chaos.batches import BATCHES
from chaos.check import Check
from chaos.hooks import HOOKS
from chaos.mails import MAILS
from chaos.order import ORDER
from chaos.schedules import SCHEDULES

SHOWN = 5
"""Rows of a broken promise that are shown."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that did not hold."""

    check: Check
    rows: list[dict[str, Any]]


CHECKS = [
    Check(
        "every job has ended",
        "select id as job, job_type, status, attempts, locked_by, locked_until, run_at from "
        "rota.job where status <> 'dead' order by id",
    ),
    Check(
        "no job is lost: every committed job exists",
        "select o.job, o.tag, o.way from chaos.ordered o where not exists (select from chaos.job j "
        "where j.id = o.job)",
    ),
    Check(
        "no job is invented: no job exists that was rolled back or refused",
        """
        select j.id as job, j.job_type, j.payload from chaos.job j
        where not exists (select from chaos.ordered o
          where o.job in (coalesce(j.origin_id, j.id), (j.payload->>'of')::bigint))
          -- A handler made a batch in the own one; Rota what follows a batch, and scheduled jobs.
          and not exists (select from rota.batch b where b.id = j.batch and b.parent is not null)
          and not exists (select from rota.batch b where b.then_job = coalesce(j.origin_id, j.id))
          and j.schedule is null
        """,
    ),
    Check(
        "no job exists twice, and no key has two jobs",
        """
        select id as job, count(*) from chaos.job group by id having count(*) > 1
        union all
        select min(id), count(*) from chaos.job where idempotency_key is not null
          and status <> 'cancelled' and not is_resolved
        group by job_type, idempotency_key having count(*) > 1
        """,
    ),
    Check(
        "a job and the rows of its transaction exist together or not at all",
        """
        select null as job, s.tag from chaos.sale s where not exists (select from chaos.ordered o
          where o.tag = s.tag)
        union all
        select o.job, o.tag from chaos.ordered o
        where o.way = 'in a transaction' and not exists (select from chaos.sale s
          where s.tag = o.tag)
        """,
    ),
    Check(
        "what a handler commits with its job's success exists once, and only with the success",
        """
        select j.id as job, j.status, count(i.job) as rows from chaos.job j
        left join chaos.invoice i on i.job = j.id where j.job_type = 'bills'
        group by j.id, j.status having count(i.job) <> (j.status = 'succeeded')::int
        union all
        select i.job, null, 1 from chaos.invoice i
        where not exists (select from chaos.job j where j.id = i.job and j.job_type = 'bills')
        """,
    ),
    Check(
        "a worker starts only jobs that it has claimed",
        """
        select w.job, w.claim, w.worker from chaos.witness w
        where w.said = 'start' and not exists (
          select from chaos.change c
          where c.job = w.job and c.claims = w.claim and c.worker = w.worker
            and c.status = 'running' and c.at <= to_timestamp(w.at_s))
        """,
    ),
    Check(
        "a claim starts its job at most once",
        "select job, claim, count(*) from chaos.witness where said = 'start' group by job, claim "
        "having count(*) > 1",
    ),
    Check(
        "no attempt starts while another claim holds the lease",
        """
        select w.job, w.claim, w.worker, to_timestamp(w.at_s) as started_at, c.worker
          as other, c.claims as others_claim, c.at as taken_at
        from chaos.witness w
        join chaos.change c on c.job = w.job and c.claims > w.claim and c.status = 'running'
          and c.was_status <> 'running'
        where w.said = 'start' and c.at < to_timestamp(w.at_s)
        """,
    ),
    Check(
        "no attempt starts after its claim has ended",
        """
        select job, claim, worker, began_at, ended_at, ended_status, ended_by from chaos.claim
          where ended_at < began_at
        """,
    ),
    Check(
        "a claim ends once",
        """
        select job, was_claims as claim, count(*), array_agg(status) from chaos.change
        where was_status = 'running' and status is distinct from 'running' group by job, was_claims
          having count(*) > 1
        """,
    ),
    Check(
        "every move out of running increases the claim number",
        "select job, was_claims, claims, status from chaos.change where was_status = 'running' and "
        "status <> 'running' and claims <= was_claims",
    ),
    Check(
        "a succeeded job was ended by its last claim",
        """
        select h.id as job, h.claims, h.locked_by, last.claim, last.worker from chaos.history h
        left join lateral (select c.claim, c.worker from chaos.claim c where c.job = h.id
          order by c.seq desc limit 1) last on true
        where h.status = 'succeeded' and (h.claims, h.locked_by) is distinct
          from (last.claim, last.worker)
        """,
    ),
    Check(
        "for every success the handler of the same claim returned",
        """
        select h.id as job, h.claims as claim, h.locked_by from chaos.history h
        where h.status = 'succeeded' and not exists (
          select from chaos.witness w where w.job = h.id and w.claim = h.claims
            and w.worker = h.locked_by and w.said = 'end' and w.how = 'returned'
            and to_timestamp(w.at_s) <= chaos.real(h.finished_at))
        """,
    ),
    Check(
        "every recorded failure belongs to an attempt of the same claim",
        """
        select a.job, a.claim, a.worker, a.error_type from chaos.attempt a
        where not exists (select from chaos.claim c where c.job = a.job and c.claim = a.claim
          and c.worker = a.worker)
          or a.release is not null and not exists (
            select from chaos.witness w where w.job = a.job and w.claim = a.claim
              and w.worker = a.worker and w.said = 'start')
        """,
    ),
    Check(
        "nothing is written for a dead or frozen worker",
        """
        select c.job, c.was_claims as claim, c.role, c.was_worker, c.at, to_timestamp(s.since_s)
          as since
        from chaos.silence s
        join chaos.change c on split_part(c.was_worker, ':', 2)::int = s.pid
          and c.was_status = 'running'
          and c.role not in ('rota upkeep', 'rota reap', 'person', 'soak clock')
          -- A busy server may take this long for a statement that was on its way.
          and c.at > to_timestamp(s.since_s) + interval '3 seconds'
          and c.at < coalesce(to_timestamp(s.until_s), 'infinity')
        """,
    ),
    Check(
        "no job starts more often than max_attempts plus one, but for losses beside other suspects",
        # Such a loss is not charged, nor is that of a suspect whose worker goes down; in calls of
        # many there are six at most.
        """
        select w.job, j.job_type, count(*) as starts, coalesce(j.max_attempts, t.max_attempts)
          as max_attempts, s.losses as losses_beside_others
        from chaos.witness w join chaos.job j on j.id = w.job join rota.job_type t
          on t.name = j.job_type
        cross join lateral (select count(*) as losses from chaos.change c where c.job = w.job
          and c.was_losses > 0 and c.losses > c.was_losses and c.attempts < c.was_attempts) s
        where w.said = 'start' and not exists (select from chaos.witness e where e.job = w.job
          and e.claim = w.claim and e.how = 'snoozed')
        group by w.job, j.job_type, j.max_attempts, t.max_attempts, s.losses
        having count(*) > coalesce(j.max_attempts, t.max_attempts) + 1 + least(s.losses, 6)
        """,
    ),
    Check(
        "a job with one attempt starts at most once",
        """
        select w.job, j.job_type, count(*) as starts
        from chaos.witness w join chaos.job j on j.id = w.job join rota.job_type t
          on t.name = j.job_type
        where w.said = 'start' and coalesce(j.max_attempts, t.max_attempts) = 1
          and not exists (select from chaos.witness e where e.job = w.job and e.claim = w.claim
            and e.how = 'snoozed')
        group by w.job, j.job_type having count(*) > 1
        """,
    ),
    Check(
        "a job with on_lost='dead' does not start again after its worker was lost",
        """
        select c.job, c.claim, c.ended_status, c.ended_by, later.claim as later from chaos.claim c
        join rota.job_type t on t.on_lost = 'dead' join chaos.job j on j.id = c.job
          and j.job_type = t.name
        join chaos.claim later on later.job = c.job and later.claim > c.claim and later.began
        where c.began and c.ended_by in ('rota upkeep', 'rota reap')
        """,
    ),
    Check(
        "no job is dead that never started",
        """
        select j.id as job, j.job_type, j.attempts, j.error_type from chaos.job j
        where j.status = 'dead' and not exists (
          select from chaos.claim c where c.job = j.id and (c.began or c.recorded))
        """,
    ),
    Check(
        "no attempt is charged that never started",
        """
        select c.job, c.claim, c.worker, c.ended_status, c.ended_by from chaos.claim c
        where c.is_over and c.charged and not c.began and c.recorded is not true
        """,
    ),
    Check(
        "the first loss of a job is not charged, unless its start was recorded",
        """
        select c.job, c.claim, c.worker, c.ended_status, c.losses from chaos.claim c
        where c.ended_by in ('rota upkeep', 'rota reap') and c.charged
          and coalesce(c.was_losses, 0) = 0 and c.recorded is not true
        """,
    ),
    Check(
        "no message is sent twice whose effect says 'skip' or 'dead'",
        """
        select min(d.job) as job, d.key, count(*) from chaos.deed d
        where d.said = 'message' and d.key not like 'send_repeat:%' group by d.key
          having count(*) > 1
        """,
    ),
    Check(
        "a message whose effect says 'repeat' is sent once more at most for each failed attempt",
        """
        select min(d.job) as job, d.key, count(*), failed.count as failed
        from chaos.deed d
        cross join lateral (select count(*) from chaos.sender s join chaos.claim c on c.job = s.job
          where s.key = d.key and c.began and c.ended_status is not null) failed
        where d.said = 'message' and d.key like 'send_repeat:%' group by d.key, failed.count
          having count(*) > 1 + failed.count
        """,
    ),
    Check(
        "nothing is done again by an attempt that began after its effect or step was done",
        """
        select d.job, d.claim, d.key, d.began_at, e.done_at from chaos.deed d
        join rota.effect e using (key, origin_id) where chaos.real(e.done_at) < d.began_at
        union all
        select d.job, d.claim, d.key, d.began_at, o.done_at from chaos.deed d
        join chaos.deed o using (key, origin_id) where o.done_at < d.began_at
        """,
    ),
    Check(
        "an effect or step that a handler saw done stays done, with the result of its attempt",
        """
        select d.job, d.claim, d.key, e.job as by_job, e.claim as by_claim, e.result
        from chaos.deed d left join rota.effect e using (key, origin_id)
        where d.done_at is not null and (e.done_at is null
          or (e.job, e.claim, e.result::jsonb) is distinct from (d.job, d.claim, to_jsonb(d.claim)))
        """,
    ),
    Check(
        "an effect or step that is done has happened, in the attempt that is named",
        """
        select e.job, e.claim, e.key, e.done_at from chaos.effect e
        where e.done_at is not null and e.key not like 'mail:%' and not exists (
          select from chaos.deed d
          where (d.job, d.claim, d.key, d.origin_id) = (e.job, e.claim, e.key, e.origin_id)
            and d.at <= chaos.real(e.done_at))
        """,
    ),
    Check(
        "a job succeeds only if its effect is done, or is uncertain and says 'skip'",
        """
        select s.job, s.key, e.status from chaos.sender s
        left join rota.effects e on e.key = s.key and e.step_of is null
        where s.status = 'succeeded' and e.status is distinct from 'done'
          and (e.status, s.if_uncertain) is distinct from ('uncertain', 'skip')
        """,
    ),
    Check(
        "a job is dead of an uncertain effect only if it has one that says 'dead'",
        """
        select a.job, a.claim, a.message, e.key, e.status from chaos.attempt a
        left join chaos.sender s on s.job = a.job
        left join rota.effects e on e.key = s.key and e.step_of is null
        where a.outcome = 'dead' and a.message like '% may have happened %'
          and (s.if_uncertain, e.status) is distinct from ('dead', 'uncertain')
        """,
    ),
    Check(
        "no effect or step is intended when all jobs have ended",
        "select job, claim, key, step_of, intended_at from rota.effects where status = 'intended'",
    ),
    Check(
        "a job succeeds only if its steps are done, and they were done in order",
        """
        select j.id as job, string_agg(e.place || ' ' || e.key, ', ' order by e.done_at) as done
        from chaos.job j
        left join rota.effects e on e.step_of = j.id and e.status = 'done'
        where j.job_type = 'three_steps' and j.status = 'succeeded' group by j.id
        having string_agg(e.place || ' ' || e.key, ', ' order by e.done_at)
          is distinct from '1 reserve, 2 charge, 3 ship'
        union all
        select a.job, a.message from chaos.attempt a
          where a.message like 'the steps are in another order%'
        """,
    ),
    Check(
        "a job that waited for others goes on when all have ended",
        """
        select w.job, w.claim, p.id as piece, p.finished_at, to_timestamp(w.at_s) as began_at
        from chaos.witness w join chaos.job j on j.id = w.job and j.job_type = 'assemble'
        join rota.jobs p on p.job_type = 'piece' and (p.payload->>'of')::bigint = w.job
        where w.said = 'start'
          and chaos.real(coalesce(p.finished_at, p.failed_at)) > to_timestamp(w.at_s)
          and exists (select from chaos.change c where c.job = w.job and c.status = 'waiting'
            and c.claims < w.claim)
        """,
    ),
    Check(
        "a job that waited for others goes on with their results, and enqueues each once",
        """
        select h.id as job, h.result, p.count, p.sum
        from chaos.history h
        cross join lateral (select count(*), coalesce(sum(p.result::text::int), 0) as sum
          from rota.jobs p where p.job_type = 'piece' and (p.payload->>'of')::bigint = h.id) p
        where h.job_type = 'assemble' and h.status = 'succeeded'
          and (h.result->'pieces', h.result->'sum') is distinct from
            (to_jsonb(p.count), to_jsonb(p.sum))
        """,
    ),
    Check(
        "the handlers' table agrees with their files",
        """
        select r.job, r.claim, r.worker from chaos.run r
        where not exists (select from chaos.witness w where w.job = r.job and w.claim = r.claim
          and w.worker = r.worker and w.said = 'start')
        """,
    ),
    Check(
        "no worker ends unasked, and every stopped worker exits with 0 or 5",
        """
        select null as job, pid, release, how, code, to_timestamp(began_at_s)
          as began_at, to_timestamp(ended_at_s) as ended_at from chaos.process
        where how not in ('killed', 'told to stop', 'told to stop before it had begun',
          'found no database') or how = 'told to stop' and code not in (0, 5)
        """,
    ),
    *ORDER,
    *BATCHES,
    *MAILS,
    *HOOKS,
    *SCHEDULES,
]


def judge(connection: psycopg.Connection) -> list[Broken]:
    """Return the promises that do not hold."""
    broken = []
    with connection.cursor(row_factory=dict_row) as cursor:
        for check in CHECKS:
            rows = cursor.execute(check.select).fetchall()
            if rows:
                broken.append(Broken(check, rows))
    return broken


TIMELINE = """
select at, 'row' as source, concat_ws(' ', role || ':', coalesce(was_status, 'new'), '->',
  coalesce(status, 'over'), 'claims', was_claims, '->', claims,
  'attempts', was_attempts, '->', attempts, 'losses', was_losses, '->', losses, 'recorded',
    was_recorded, '->', recorded,
  'by', coalesce(worker, was_worker), 'until', coalesce(until, was_until)) as what
from chaos.change where job = %(job)s
union all
select to_timestamp(at_s), 'handler', concat_ws(' ', said, how, 'claim', claim, 'by', worker)
  from chaos.witness where job = %(job)s
union all
select finished_at, 'attempt', concat_ws(' ', outcome, 'claim', claim, error_type || ':', message)
  from chaos.attempt where job = %(job)s
union all
select finished_at, 'history', concat_ws(' ', status, 'claim', claims, 'by', locked_by)
  from chaos.history where id = %(job)s
union all
select to_timestamp(s.since_s), 'villain', concat_ws(' ', 'pid', s.pid, 'silent until',
  to_timestamp(s.until_s)) from chaos.silence s
where s.pid in (select split_part(c.worker, ':', 2)::int from chaos.change c where c.job = %(job)s
  and c.worker is not null)
order by 1
"""


def timeline(connection: psycopg.Connection, job: int) -> list[str]:
    """Return everything that is recorded about one job, in the order of time."""
    rows = connection.execute(TIMELINE, {"job": job}).fetchall()
    return [f"{at:%H:%M:%S.%f} {source:8} {what}" for at, source, what in rows]
