-- Returns how many microseconds an instant lies ahead of another; 0 if it does not, or is NULL.
create or replace function {schema}.limit_ahead(p_at timestamptz, p_now timestamptz)
returns bigint
language sql immutable parallel safe
as $$
  select greatest(0, coalesce((extract(epoch from p_at - p_now) * 1000000)::bigint, 0))
$$;
