-- Returns how far the starts of a key are given away, in microseconds from p_now, where the pace is
-- p_spacing. What was given away at a slower pace shrinks with it: a limit that was raised gives
-- starts at once. What was given away at a faster one stands. Until held_to all is given away, the
-- burst too.
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
  select greatest(
    {schema}.limit_ahead(p_state.tat, p_now) * case
      when p_state.spacing > p_spacing then p_spacing::float8 / p_state.spacing
      else 1
    end,
    {schema}.limit_ahead(
      p_state.held_to + p_spacing * (p_burst - 1) * interval '1 microsecond', p_now
    )
  )::bigint
$$;
