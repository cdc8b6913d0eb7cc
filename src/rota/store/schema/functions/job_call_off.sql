-- Ends jobs that were called off and that no worker holds: they go to history as cancelled and free their keys. Of dead ones nobody asks that.
-- Whoever wrote the request or took the job out of `running` calls it in the same transaction, so nobody else meets such a row. Returns those that are over.
create or replace function job_call_off(p_ids bigint[]) returns setof bigint
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan set search_path from current as $$
begin
  return query
  with over as (
    delete from job j
    where j.id = any (p_ids) and j.cancel_requested_at is not null and j.status <> 'running'
    returning j.*),
  key_freed as (
    delete from idempotency i using over o
    where o.idempotency_key is not null and i.job_type in (o.job_type, canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id)
  insert into job_history
  select ended.*
  from over o
  cross join lateral jsonb_populate_record(null::job_history,
    to_jsonb(o) || jsonb_build_object('status', 'cancelled', 'updated_at', clock(), 'finished_at', clock())
    -- The reason takes the place of what the last attempt failed of; that is in `attempt`.
    || case when o.cancel_reason is null then '{}'
       else jsonb_build_object('last_error', o.cancel_reason, 'error_type', null, 'response_code', null, 'verdict', null, 'verdict_rule', null) end) ended
  returning job_history.id;
end $$;
