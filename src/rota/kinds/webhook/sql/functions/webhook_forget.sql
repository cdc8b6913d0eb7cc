-- Deletes up to 10,000 deliveries that are older than p_keep. Returns how many.
-- Locks: the rows of the deliveries.
create or replace function {schema}.webhook_forget(p_keep interval)
returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  delete from {schema}.webhook_delivery d
  where (d.endpoint, d.event_id) in (
    select o.endpoint, o.event_id
    from {schema}.webhook_delivery o
    where o.created_at < {schema}.clock() - p_keep
    order by o.created_at
    limit 10000
  );
  get diagnostics v_count = row_count;
  return v_count;
end $$;
revoke execute on function {schema}.webhook_forget(interval) from public;
