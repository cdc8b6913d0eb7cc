-- Returns which of the p_limit most urgent dead jobs have halted their lanes since before p_before.
-- Locks: none; index job_waits.
create or replace function {schema}.lanes_halted(p_before timestamptz, p_limit int)
returns table (group_key text, job bigint, since timestamptz, error_type text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select h.group_key, h.id, h.since, h.error_type
  from (
    select j.group_key, j.id, coalesce(j.waits_since, j.failed_at) as since, j.error_type
    from {schema}.job j
    where j.waits_for = 'person'
      and j.status <> 'running'
    order by j.priority desc, j.run_at, j.id
    limit p_limit
  ) h
  where h.since < p_before
$$;
