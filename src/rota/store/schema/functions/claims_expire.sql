-- Ends those of these claimed jobs whose expires_at has passed, uncharged, and returns the others
-- (for a claim in SQL; a worker in Python does it before a job begins).
-- Locks: the rows of the jobs, which the claim has locked.
-- Keeps: M36, past its expiry a job is not started.
create or replace function {schema}.claims_expire(p_ids bigint[], p_release text)
returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_late jsonb;
  v_ids bigint[];
begin
  select
    jsonb_agg(
      jsonb_build_object(
        'id', j.id,
        'claims', j.claims,
        'status', 'dead',
        'charged', false,
        'error_type', 'Expired',
        'verdict', 'fatal',
        'verdict_rule', 'expired',
        'message', {schema}.expiry_message(j, 'it was claimed too late'::text)
      )
    ) filter (where j.expires_at <= {schema}.clock()),
    array_agg(j.id) filter (where (j.expires_at <= {schema}.clock()) is not true)
  into v_late, v_ids
  from {schema}.job j
  where j.id = any (p_ids);
  if v_late is not null then
    perform {schema}.partitions_ensure(0);
    perform {schema}.job_leave(v_late, p_release);
  end if;
  return coalesce(v_ids, '{}');
end $$;
