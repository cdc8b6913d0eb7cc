"""The promises of batches, which the judge checks beside the others."""

from __future__ import annotations

from chaos.check import Check

BATCHES = [
    Check(
        "nothing is left to count of a batch, and every batch has ended",
        """
        select null::bigint as job, d.batch, 'not counted' as why from rota.batch_delta d
        union all
        select null, b.id, 'not ended' from chaos.batch b where b.outcome is null
        """,
    ),
    Check(
        "a batch counts what its members have come to",
        """
        select min(m.job) as job, b.id as batch, b.total, b.succeeded, b.dead, b.cancelled,
          count(m.batch) as members, count(*) filter (where m.status = 'succeeded') as really,
          count(*) filter (where m.status = 'dead') as really_dead,
          count(*) filter (where m.status = 'cancelled') as really_cancelled
        from chaos.batch b left join chaos.member m on m.batch = b.id
        group by b.id, b.total, b.succeeded, b.dead, b.cancelled
        having (b.total, b.succeeded, b.dead, b.cancelled) is distinct from (count(m.batch),
          count(*) filter (where m.status = 'succeeded'),
          count(*) filter (where m.status = 'dead'),
          count(*) filter (where m.status = 'cancelled'))
        """,
    ),
    Check(
        "what follows a batch is enqueued once, unless a member that failed holds it back",
        """
        select min(f.job) as job, b.id as batch, b.on_failure, b.outcome, b.then_job, b.then_error,
          count(f.job) as followers
        from chaos.batch b left join chaos.follower f on f.batch = b.id
        group by b.id, b.on_failure, b.outcome, b.then_job, b.then_jobs, b.then_error
        having count(f.job) <> (b.then_jobs is not null
            and (b.on_failure = 'continue' or b.outcome = 'succeeded'))::int
          or min(f.job) is distinct from b.then_job
        """,
    ),
    Check(
        "nothing follows a batch before every member, and those of batches in it, has ended",
        """
        select f.job, f.batch, m.id as member, followed.at
        from chaos.follower f
        cross join lateral (select min(c.seq) as seq, min(c.at) as at from chaos.change c
          where c.job = f.job) followed
        cross join lateral rota.batch_tree(f.batch) t(id)
        -- A requeue may come while what follows is enqueued.
        join chaos.job m on m.batch = t.id and m.origin_id is null
        where not exists (select from chaos.change c where c.job = m.id
          and (c.status is null or c.status = 'dead') and c.seq < followed.seq)
        """,
    ),
    Check(
        "a handler that has made a batch made all of its members",
        """
        select s.id as job, count(distinct p.payload->>'place') as members
        from chaos.job s left join chaos.job p on p.job_type = 'part'
          and p.payload->>'n' = s.payload->>'n'
        where s.job_type = 'split' and s.status = 'succeeded' group by s.id
        having count(distinct p.payload->>'place') <> 6  -- chaos.app has this number too
        """,
    ),
]
