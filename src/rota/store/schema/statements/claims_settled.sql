-- Find the claims that this worker has settled already, after it lost the answer to a write.
-- Parameters: ids int8[]; claims int4[]; succeeded text[] (the job's type where it was to succeed,
--   else NULL); worker text
-- Rows: id int8; status text; run_at timestamptz
-- Locks: none; indexes job_history_id, attempt_job and job_pkey.
-- Keeps: a committed outcome is not reported as lost. If neither the job nor a row of the claim in
--   `attempt` is there, a success with history = 'failures' was committed.
select c.id, h.status, null::timestamptz as run_at
from unnest(:ids::int8[], :claims::int4[]) c(id, claim)
join :schema.job_history h
  on h.id = c.id
  and h.claims = c.claim
  and h.locked_by = :worker::text
union all
select c.id, a.outcome, a.next_run_at
from unnest(:ids::int8[], :claims::int4[]) c(id, claim)
join :schema.attempt a on a.job = c.id and a.claim = c.claim
where a.worker = :worker::text
  and a.release is not null
union all
select c.id, 'succeeded', null
from unnest(:ids::int8[], :claims::int4[], :succeeded::text[]) c(id, claim, job_type)
where exists (
    select from :schema.job_type t
    where t.name = :schema.canonical_type(c.job_type)
      and t.history = 'failures'
  )
  and not exists (select from :schema.job j where j.id = c.id)
  and not exists (select from :schema.job_history h where h.id = c.id)
  and not exists (
    select from :schema.attempt a
    where a.job = c.id
      and a.claim = c.claim
  )
