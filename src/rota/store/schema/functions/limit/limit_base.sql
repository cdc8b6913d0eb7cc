-- Returns until when the starts of a key are given away, in microseconds from p_now, by its state
-- as of then (limit_normal). Until held_to all is given away, the burst too.
create or replace function {schema}.limit_base(
  p_state {schema}.rate_limit_key,
  p_spacing bigint,
  p_burst int,
  p_now timestamptz
)
returns bigint
language sql immutable parallel safe
as $$
  select greatest(
    {schema}.limit_ahead(p_state.tat, p_now),
    {schema}.limit_ahead(
      p_state.held_to + p_spacing * (p_burst - 1) * interval '1 microsecond', p_now
    )
  )
$$;
