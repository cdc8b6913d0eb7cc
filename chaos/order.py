"""The promises of lanes, caps, rate limits and breakers, which the judge checks beside the others.

The numbers of `chaos.change` are an order of decisions: a row that is changed under a lock has a
higher number than all that was committed before.
"""

from __future__ import annotations

from chaos.check import Check

ORDER = [
    Check(
        "never more jobs of a lane run at once than its capacity",
        """
        with laned as materialized (select * from chaos.claim where group_key is not null)
        select c.job, c.claim, c.group_key, c.capacity, count(*) as running
        from laned c join laned o on o.group_key = c.group_key and o.seq <= c.seq
          and (o.ended_seq is null or o.ended_seq > c.seq)
        group by c.job, c.claim, c.group_key, c.capacity having count(*) > c.capacity
        """,
    ),
    Check(
        "never more handlers of a lane run at once than its capacity, but after a lost lease",
        """
        with ran as materialized (select * from chaos.laned_run)
        select r.job, r.claim, r.group_key, r.capacity, count(*) as others from ran r
        join ran o on o.group_key = r.group_key and (o.job, o.claim) <> (r.job, r.claim)
          and o.began_at <= r.began_at and o.over_at > r.began_at
        group by r.job, r.claim, r.group_key, r.capacity having count(*) >= r.capacity
        """,
    ),
    Check(
        "never more jobs of a lane hold a place than its capacity, and only those run",
        """
        with place as materialized (select * from chaos.place)
        select p.job, p.group_key, p.capacity, count(*) as held
        from place p join place o on o.group_key = p.group_key and o.seq <= p.seq
          -- A requeued job hands its place to the new one.
          and (o.seq = p.seq or o.gone_seq is null
            or o.gone_seq > p.seq and o.gone_xid <> p.xid)
        group by p.seq, p.job, p.group_key, p.capacity having count(*) > p.capacity
        union all
        select c.job, c.group_key, c.group_capacity, 0 from chaos.change c
        where c.status = 'running' and c.group_key is not null and c.in_lane is not true
        """,
    ),
    Check(
        "no job takes a place of its lane before another that was due and known, and comes first",
        """
        with place as materialized (select * from chaos.place where run_at is not null),
        passed as (
          select p.seq, p.job, p.group_key, p.capacity, p.at, p.priority, p.run_at,
            y.job as passed, y.run_at as passed_run_at, y.status as passed_status
          from place p
          cross join lateral (
            select distinct on (c.job) c.* from chaos.change c
            where c.group_key = p.group_key and c.seq < p.seq and c.job <> p.job
            order by c.job, c.seq desc) y
          where y.status in ('queued', 'failed', 'waiting') and y.in_lane is not true
            and (y.priority > p.priority
                and chaos.real(y.run_at) < p.asked_at - interval '1 second'
              or y.priority = p.priority and (y.run_at, y.job) < (p.run_at, p.job))
            -- When the clock has been moved, what was just enqueued looks late.
            and not exists (select from chaos.moved m
              where m.at between p.at - interval '5 seconds' and p.at)
            -- One statement may let several in.
            and not exists (select from chaos.place q where q.job = y.job and q.xid = p.xid)
            -- It was committed: others saw it so before the statement began that gave the place.
            and exists (select from chaos.change z
              where z.at between p.asked_at - interval '1 second'
                  and p.asked_at - interval '0.2 seconds'
                and pg_visible_in_snapshot(y.xid, z.snapshot)))
        select p.* from passed p
        -- A lane of many has a place for those too, which another worker may be taking.
        where p.capacity <= (select count(*) from passed o where o.seq = p.seq)
          + (select count(*) from place h where h.group_key = p.group_key and h.seq < p.seq
              and (h.gone_seq is null or h.gone_seq > p.seq))
        """,
    ),
    Check(
        "no place of a lane and no slot of a cap is left over",
        """
        select j.id as job, j.status, j.group_key, j.in_lane, j.capped, j.waits_for from rota.job j
        left join rota.job_type t on t.name = j.job_type
        where j.status <> 'running' and j.capped
          or j.status = 'dead' and j.in_lane and t.on_dead is distinct from 'halt'
        """,
    ),
    Check(
        "no lane is halted that a person has put right",
        """
        select id as job, job_type, group_key, waits_for from rota.job
        where in_lane or waits_for = 'person'
        """,
    ),
    Check(
        "never more jobs run at once than the cap of their type",
        """
        with capped as materialized (select c.*, t.max_running from chaos.claim c
          join rota.job_type t on t.name = c.job_type and t.max_running is not null)
        select c.job, c.claim, c.job_type, c.max_running, count(*) as running
        from capped c join capped o on o.job_type = c.job_type and o.seq <= c.seq
          and (o.ended_seq is null or o.ended_seq > c.seq)
        group by c.job, c.claim, c.job_type, c.max_running having count(*) > c.max_running
        """,
    ),
    Check(
        "no job is claimed beyond the cap of its queue, also after it has been changed",
        """
        with capped as materialized (select c.* from chaos.claim c
          where c.queue in (select queue from chaos.cap)),
        running as (
          select c.job, c.claim, c.queue, c.taken_at, count(*) as running
          from capped c join capped o on o.queue = c.queue and o.seq <= c.seq
            and (o.ended_seq is null or o.ended_seq > c.seq)
          group by c.job, c.claim, c.queue, c.taken_at)
        select r.*, cap.most from running r
        cross join lateral (select max(k.max_running) as most from chaos.cap k
          where k.queue = r.queue and k.at <= r.taken_at
            -- A claim may have begun before the change was committed.
            and not exists (select from chaos.cap n where n.queue = k.queue and n.seq > k.seq
              and n.at < r.taken_at - interval '2 seconds')) cap
        where r.running > cap.most
        """,
    ),
    Check(
        "a limited key never starts more than limit plus burst in any window",
        """
        with start as materialized (select * from chaos.keyed_start where job_type = 'limited')
        select s.job, s.claim, s.number as key, s.at, pace.most, count(*) as starts
        from start s
        cross join lateral (
          select max(p.starts + p.burst) as most, max(p.per) as per from chaos.pace p
          where p.name = s.job_type and p.at <= s.at and not exists (select from chaos.pace n
            where n.name = p.name and n.seq > p.seq
              and n.at < s.at - n.per - interval '1 second')) pace
        join start o on o.number = s.number and o.at <= s.at and o.at > s.at - pace.per
        -- When the clock has been moved, the time between is over.
        where not exists (select from chaos.moved m where m.at between s.at - pace.per and s.at)
        group by s.job, s.claim, s.number, s.at, pace.most having count(*) > pace.most
        """,
    ),
    Check(
        "while a breaker has been open for a second, no job of its key is claimed but the trial",
        """
        select s.job, s.claim, c.taken_at, b.key, b.state, b.opened_at, b.trial_job, b.trial_claim
        from chaos.keyed_start s
        join chaos.claim c on (c.job, c.claim) = (s.job, s.claim)
        cross join lateral (select * from chaos.breaker b
          where b.key = 'host' || s.number and b.at <= c.taken_at order by b.at desc limit 1) b
        where s.job_type = 'guarded' and chaos.real(b.opened_at) < c.taken_at - interval '1 second'
          and (b.state = 'open' or b.state = 'trial'
            and (b.trial_job, b.trial_claim) <> (s.job, s.claim))
        """,
    ),
    Check(
        "a breaker has one trial at a time",
        """
        select b.trial_job as job, b.key, b.at, c.job as other, c.claim, c.ended_at
        from chaos.breaker b
        join chaos.claim c on (c.job, c.claim) = (b.was_trial_job, b.was_trial_claim)
        where b.was_state = 'trial' and b.state = 'trial'
          and (b.trial_job, b.trial_claim) <> (c.job, c.claim)
          and (c.ended_at is null or c.ended_at > b.at)
          and not exists (select from chaos.moved m where m.at between c.taken_at and b.at)
        """,
    ),
    Check(
        "no job is charged that a limit or a breaker handed back",
        """
        select job, was_claims as claim, waits_for, was_attempts, attempts from chaos.change
        where was_status = 'running' and status <> 'running' and attempts >= was_attempts
          and (waits_for like 'limit %' or waits_for like 'breaker %')
        """,
    ),
]
