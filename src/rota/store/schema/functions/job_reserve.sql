-- Reserves ids for a bulk, in ascending order. SECURITY DEFINER: a producer needs no right on the
-- sequence.
-- Locks: none.
-- Keeps: jobs due at the same time run in the order of the call.
create or replace function {schema}.job_reserve(p_count int)
returns setof bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  with sequence as materialized (
    select pg_get_serial_sequence('{schema}.job', 'id')::regclass as name
  )
  select nextval(s.name)
  from sequence s
  cross join generate_series(1, p_count)
$$;
