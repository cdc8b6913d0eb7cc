-- Returns how many more jobs the cap of this key ('type NAME' or 'queue NAME') lets run; NULL:
-- there is no cap. The answer stays true while the caller holds the stripe of the key.
-- Locks: none; index job_waits.
-- Keeps: M60, a cap counts rows, so no crash can leak or double a slot.
create or replace function {schema}.cap_free(p_key text)
returns int
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_name text := substr(p_key, strpos(p_key, ' ') + 1);
  v_types text[] := case when p_key like 'type %' then {schema}.type_names(v_name) end;
begin
  return (
    select greatest(
      0,
      cap.max_running - (
        select count(*)
        from {schema}.job j
        where j.capped
          and j.waits_for is null
          and case when v_types is null then j.queue = v_name else j.job_type = any (v_types) end
      )
    )
    from (
      select q.max_running
      from {schema}.queue q
      where q.name = v_name
        and q.max_running is not null
        and v_types is null
      union all
      select t.max_running
      from {schema}.job_type t
      where t.name = v_name
        and t.max_running is not null
        and v_types is not null
    ) cap
  );
end $$;
