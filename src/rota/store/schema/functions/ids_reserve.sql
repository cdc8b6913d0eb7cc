-- Reserves ids for a bulk, in ascending order. SECURITY DEFINER: a producer needs no right on the
-- sequence.
-- Locks: none.
-- Keeps: jobs due at the same time run in the order of the call.
create or replace function {schema}.ids_reserve(p_count int)
returns bigint[]
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select nextval('{schema}.job_id_seq')
    from generate_series(1, p_count)
  )
$$;
