-- Returns the caps that count these jobs, the type's before the queue's; NULL, NULL: no cap does.
-- Locks: none; indexes job_pkey, job_type_capped and queue_capped.
create or replace function {schema}.job_caps(p_ids bigint[])
returns table (queue text, job_type text, type_cap text, queue_cap text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select d.queue, d.job_type, 'type ' || t.name, 'queue ' || q.name
  from (
    select distinct j.queue, j.job_type
    from {schema}.job j
    where j.id = any (p_ids)
  ) d
  left join {schema}.job_type t
    on t.name = {schema}.canonical_type(d.job_type)
    and t.max_running is not null
  left join {schema}.queue q
    on q.name = d.queue
    and q.max_running is not null
$$;
