-- Returns how far the starts of a key are given away, in microseconds from p_now, where the pace is
-- p_spacing. What was given away at a slower pace shrinks with it: a limit that was raised gives
-- starts at once. What was given away at a faster one stands. While a handler has said to wait
-- (spacing is NULL), tat is the end of that, and the burst is given away too.
create or replace function {schema}.limit_base(
  p_state {schema}.rate_limit_key,
  p_spacing bigint,
  p_burst int,
  p_now timestamptz
)
returns bigint
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_state.spacing is null
      then {schema}.limit_ahead(
        p_state.tat + p_spacing * (p_burst - 1) * interval '1 microsecond', p_now
      )
    when p_state.spacing > p_spacing
      then (
        {schema}.limit_ahead(p_state.tat, p_now) * (p_spacing::float8 / p_state.spacing)
      )::bigint
    else {schema}.limit_ahead(p_state.tat, p_now)
  end
$$;
