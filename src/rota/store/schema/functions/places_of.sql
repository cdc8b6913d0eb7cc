-- Returns the lanes of these jobs, and the caps in which they count, each as often as they do: what
-- places_free takes, read before the jobs end.
-- Locks: none; index job_pkey.
create or replace function {schema}.places_of(p_ids bigint[])
returns table (lanes text[], caps text[])
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_capped bigint[];
begin
  select
    array_agg(j.group_key) filter (where j.group_key is not null),
    array_agg(j.id) filter (where j.capped)
  into lanes, v_capped
  from {schema}.job j
  where j.id = any (p_ids);
  if v_capped is not null then
    caps := array(
      select unnest(array['type ' || {schema}.canonical_type(j.job_type), 'queue ' || j.queue])
      from {schema}.job j
      where j.id = any (v_capped)
    );
  end if;
  return next;
end $$;
