-- Lets jobs compete again that wait for a cap with free slots, which nobody gave them: the cap was
-- raised or removed by hand, or a running job was deleted. At most a thousand for each cap. Returns
-- whether there is any cap, how many caps jobs wait for, and how many jobs it released.
-- Locks: the rows that it releases, with SKIP LOCKED; index job_waits.
-- Keeps: no job stays parked while a slot is free.
create or replace function {schema}.caps_sweep()
returns table (has_caps boolean, caps int, released int)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind text;
  v_cap text;
begin
  has_caps := exists (select from {schema}.queue q where q.max_running is not null)
    or exists (select from {schema}.job_type t where t.max_running is not null);
  caps := 0;
  released := 0;
  foreach v_kind in array array['queue ', 'type '] loop
    v_cap := v_kind;
    loop
      -- waits_for is compared byte by byte: '!' follows the space.
      v_cap := (
        select j.waits_for
        from {schema}.job j
        where j.waits_for > v_cap
          and j.waits_for < rtrim(v_kind) || '!'
          and j.status = 'waiting'
        order by j.waits_for
        limit 1
      );
      exit when v_cap is null;
      caps := caps + 1;
      released := released + {schema}.cap_release(
        v_cap,
        least(1000, {schema}.cap_free(v_cap)),
        true
      );
    end loop;
  end loop;
  return next;
end $$;
