-- Read how the jobs of a batch ended, in the order of their insertion. A requeued member's place
-- has the job as which it was requeued (see job_end).
-- Parameters: batch int8; after int8 (only ids above); limit int
-- Rows: id int8; job int8; outcome text (NULL: it has not ended); result text; error_type text;
--   message text
-- Locks: none; indexes batch_part_pkey, job_pkey and job_history_id, from the batch's first day on.
-- Keeps: M72.
select
  m.id,
  e.job,
  e.outcome,
  e.result::text,
  case when e.outcome in ('dead', 'archived') then e.error_type end as error_type,
  case when e.outcome in ('dead', 'archived', 'cancelled') then e.message end as message
from (
  select p.first_id, j.id
  from :schema.batch_part p
  cross join lateral (
    select l.id
    from :schema.job l
    where l.id between greatest(p.first_id, :after::int8 + 1) and p.last_id
      and l.batch = :batch::int8
      and l.origin_id is null
    union all
    select h.id
    from :schema.job_history h
    where h.id between greatest(p.first_id, :after::int8 + 1) and p.last_id
      and h.batch = :batch::int8
      and h.origin_id is null
      and h.finished_at >= (select b.created_at from :schema.batch b where b.id = :batch::int8)
  ) j
  where p.batch = :batch::int8
    and p.last_id > :after::int8
  order by p.first_id, j.id
  limit :limit::int
) m
cross join lateral :schema.job_end(m.id) e
order by m.first_id, m.id
