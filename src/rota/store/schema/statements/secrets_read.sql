-- Read a portion of the rows of one place, to find what is sealed in them.
-- Parameters: place text (job, job_history, schedule or batch); after int8 (at of the last row read
--   before); limit int (rows to read)
-- Rows: ref text; at int8; document text (NULL: nothing is sealed in the last row, at any depth)
-- Locks: none; indexes job_pkey, job_history_id and batch_pkey. All schedules are one portion.
-- Keeps: M45, a rotation goes on where another rotation stopped.
with portion as materialized (
  (
    select j.id::text as ref, j.id as at, j.payload as document
    from :schema.job j
    where :place::text = 'job'
      and j.id > :after::int8
    order by j.id
    limit :limit::int
  )
  union all
  (
    select h.id::text, h.id, h.payload
    from :schema.job_history h
    where :place::text = 'job_history'
      and h.id > :after::int8
    order by h.id
    limit :limit::int
  )
  union all
  select s.name, row_number() over (), s.payload
  from :schema.schedule s
  where :place::text = 'schedule'
    and :after::int8 = 0
  union all
  (
    select b.id::text, b.id, b.then_jobs
    from :schema.batch b
    where :place::text = 'batch'
      and b.id > :after::int8
    order by b.id
    limit :limit::int
  )
),
found as materialized (
  select
    p.ref, p.at, max(p.at) over () as last,
    case when p.document @? '$.**.sealed'::jsonpath then p.document::text end as document
  from portion p
)
select f.ref, f.at, f.document
from found f
where f.document is not null
  or f.at = f.last
order by f.at
