-- Returns the instant so many microseconds after p_now, at most a century; NULL: not ahead.
create or replace function {schema}.limit_after(p_ahead numeric, p_now timestamptz)
returns timestamptz
language sql immutable parallel safe
as $$
  select case
    when p_ahead > 0
      then p_now + least(p_ahead, 3155760000000000)::bigint * interval '1 microsecond'
  end
$$;
