-- Find the jobs that a person wants erased: by payload, or one job; first the jobs as which each
-- was retried, because it leads to them. An earlier job of the chain belongs to them if it has the
-- same payload; else a person has corrected the payload.
-- Parameters: payload text (JSON that they contain; NULL: none); job int8 (NULL: none)
-- Rows: id int8; corrected boolean (it is such an earlier job, and is not to be erased)
-- Locks: none; reads the live jobs and history.
-- Keeps: M45, an erasure that stopped goes on where it was.
with every as not materialized (
  select j.id, j.origin_id, j.payload
  from :schema.job j
  union all
  select h.id, h.origin_id, h.payload
  from :schema.job_history h
),
first as materialized (
  select distinct on (origin) coalesce(e.origin_id, e.id) as origin, e.id, e.payload
  from every e
  where e.payload @> :payload::text::jsonb
    or e.id = :job::int8
  order by origin, e.id
)
select e.id, e.id < f.id and e.payload <> f.payload as corrected
from every e
join first f on f.origin = coalesce(e.origin_id, e.id)
where not :schema.is_erased(e.payload)
  or e.id = :job::int8
order by coalesce(e.payload @> :payload::text::jsonb, e.id = :job::int8), e.id
