-- Replaces the event ids of erased jobs by hashes, so that the events stay known (for job_erase).
-- Locks: the rows of the deliveries; indexes job_history_id and webhook_delivery_pkey.
-- Keeps: M45; M71, an erased event is not delivered again.
create or replace function {schema}.webhook_erase(p_jobs bigint[])
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  update {schema}.webhook_delivery d
  set event_id = {schema}.key_hash(d.event_id)
  from {schema}.job_history h
  where h.id = any (p_jobs)
    and h.payload -> 'endpoint_id' = to_jsonb(d.endpoint)
    and d.event_id = h.payload ->> 'event_id'
$$;
revoke execute on function {schema}.webhook_erase(bigint[]) from public;
