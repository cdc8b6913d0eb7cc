"""The figures of a run."""

from __future__ import annotations

import psycopg

FIGURES = """
select 'jobs', count(*) from chaos.job
union all select 'ended ' || status, count(*) from chaos.job group by status
union all select 'claims', count(*) from chaos.claim
union all select 'starts', count(*) from chaos.witness where said = 'start'
union all select 'most starts of a job', coalesce(max(n), 0) from (select count(*) as n
  from chaos.witness where said = 'start' group by job) s
union all select 'renewals', count(*) from chaos.change where was_status = 'running'
  and status = 'running' and until > was_until
union all select 'starts recorded by Rota', count(*) from chaos.change where recorded
  and was_recorded is false
union all select 'reaped', count(*) from chaos.claim where ended_by in ('rota upkeep', 'rota reap')
union all select 'reaped, charged', count(*) from chaos.claim where ended_by
  in ('rota upkeep', 'rota reap') and charged
union all select 'reaped, uncharged: the first loss', count(*) from chaos.claim
  where ended_by in ('rota upkeep', 'rota reap') and not charged and recorded is null
union all select 'reaped, uncharged: not yet begun', count(*) from chaos.claim
  where ended_by in ('rota upkeep', 'rota reap') and not charged and recorded is false
union all select 'given back by their worker, uncharged', count(*) from chaos.claim
  where ended_by not in ('rota upkeep', 'rota reap') and ended_status = 'queued' and not charged
union all select 'attempts failed by their handler', count(*) from chaos.attempt
  where release is not null
union all select 'attempts that overlapped, the lease of the first lost', count(*)
  from chaos.claim a
  join chaos.claim b on b.job = a.job and b.seq > a.seq and b.began
  where exists (select from chaos.witness w where w.job = a.job and w.claim = a.claim
    and w.said = 'end' and to_timestamp(w.at_s) > b.began_at)
union all select 'dead, the start recorded but never seen by the handler', count(*) from chaos.job j
  where j.status = 'dead' and not exists (select from chaos.witness w where w.job = j.id
    and w.said = 'start')
union all select 'messages', count(*) from chaos.deed where said = 'message'
union all select 'messages sent again', count(*) - count(distinct key) from chaos.deed
  where said = 'message'
union all select 'mails received', count(*) from chaos.mail
union all select 'events received', count(*) from chaos.hook
union all select 'uncertain, ' || if_uncertain, count(*) from rota.effects
  where status = 'uncertain' and job > (select job from chaos.floor) group by if_uncertain
union all select 'dead of an uncertain effect', count(*) from chaos.attempt
  where outcome = 'dead' and message like '% may have happened %'
union all select 'attempts that found another job at their effect', count(*) from chaos.witness
  where how = 'snoozed'
union all select 'steps run', count(*) from chaos.deed where said = 'step'
union all select 'steps run again', count(*) - count(distinct (job, key)) from chaos.deed
  where said = 'step'
union all select 'jobs of lanes', count(distinct job) from chaos.change where group_key is not null
union all select 'places of lanes taken', count(*) from chaos.place
union all select 'jobs parked for a lane', count(*) from chaos.change where status = 'waiting'
  and was_status <> 'waiting' and waits_for is null
union all select 'jobs parked for a cap', count(*) from chaos.change where status = 'waiting'
  and was_status <> 'waiting' and waits_for is not null
union all select 'jobs that halted a lane', count(*) from chaos.change where status = 'dead'
  and was_status = 'running' and in_lane
union all select 'handed back by a limit', count(*) from chaos.change where was_status = 'running'
  and status <> 'running' and waits_for like 'limit %'
union all select 'handed back by a breaker', count(*) from chaos.change where was_status = 'running'
  and status <> 'running' and waits_for like 'breaker %'
union all select 'waits for jobs', count(*) from chaos.change where was_status = 'running'
  and status = 'waiting'
union all select 'waits for jobs that went on', count(*) from chaos.change
  where was_status = 'waiting' and status = 'queued' and queue = 'default' and job_type = 'assemble'
union all select 'times a breaker opened', count(*) from chaos.breaker where state = 'open'
  and was_state is distinct from 'open'
union all select 'trials', count(*) from chaos.breaker where state = 'trial'
union all select 'batches', count(*) from chaos.batch
union all select 'batches in batches', count(*) from chaos.batch where parent is not null
union all select 'members of batches', count(*) from chaos.job where batch is not null
union all select 'members that were requeued', count(*) from chaos.job where batch is not null
  and is_requeued
union all select 'batches with a cancelled member', count(*) from chaos.batch where cancelled > 0
union all select 'batches that a failed member holds back', count(*) from chaos.batch
  where then_jobs is not null and then_at is null
union all select 'jobs that followed a batch', count(*) from chaos.follower
union all select 'scheduled jobs', count(*) from chaos.job where schedule is not null
union all select 'worker processes', count(*) from chaos.process
union all select 'worker processes that found no database', count(*) from chaos.process
  where how = 'found no database'
"""


def figures(connection: psycopg.Connection) -> list[tuple[str, int]]:
    """Return the database's figures of the run."""
    return [(name, count) for name, count in connection.execute(FIGURES).fetchall()]
