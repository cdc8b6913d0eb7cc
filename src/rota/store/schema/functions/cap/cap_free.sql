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
begin
  if p_key like 'queue %' then
    return (
      select greatest(
        0,
        q.max_running - (
          select count(*)
          from {schema}.job j
          where j.capped
            and j.waits_for is null
            and j.queue = q.name
        )
      )
      from {schema}.queue q
      where q.name = v_name
        and q.max_running is not null
    );
  end if;
  return (
    select greatest(
      0,
      t.max_running - (
        select count(*)
        from {schema}.job j
        where j.capped
          and j.waits_for is null
          and j.job_type = any ({schema}.type_names(t.name))
      )
    )
    from {schema}.job_type t
    where t.name = v_name
      and t.max_running is not null
  );
end $$;
