-- Returns when a job comes whose slot is estimated at p_slot, in microseconds from p_now: half to
-- three quarters of p_reach before, together with others, so that one claim takes many of them.
create or replace function {schema}.limit_turn(
  p_slot numeric, p_reach numeric, p_now timestamptz
)
returns numeric
language sql immutable parallel safe
as $$
  select greatest(
    0,
    p_slot - p_reach / 2
      - mod(extract(epoch from p_now) * 1000000 + p_slot, greatest(1, p_reach / 4))
  )
$$;
