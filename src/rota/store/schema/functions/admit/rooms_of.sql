-- Returns the lanes and caps in which these jobs hold places, each as often (for rooms_advance).
-- Locks: none; index job_pkey.
create or replace function {schema}.rooms_of(p_ids bigint[])
returns text[]
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_rooms text[];
  v_capped bigint[];
begin
  select
    coalesce(array_agg('group ' || j.group_key) filter (where j.group_key is not null), '{}'),
    array_agg(j.id) filter (where j.capped)
  into v_rooms, v_capped
  from {schema}.job j
  where j.id = any (p_ids);
  if v_capped is not null then
    v_rooms := v_rooms || array(
      select unnest(array['type ' || {schema}.canonical_type(j.job_type), 'queue ' || j.queue])
      from {schema}.job j
      where j.id = any (v_capped)
    );
  end if;
  return v_rooms;
end $$;
