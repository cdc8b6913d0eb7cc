-- Returns the instant so many microseconds after another; NULL if it lies not ahead.
create or replace function {schema}.limit_after(p_ahead bigint, p_now timestamptz)
returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when p_ahead > 0 then p_now + p_ahead * interval '1 microsecond' end
$$;
