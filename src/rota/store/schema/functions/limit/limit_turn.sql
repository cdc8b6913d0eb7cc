-- Returns when a job with a slot estimated at p_slot, in microseconds from p_now, comes again: half
-- to three quarters of p_reach earlier, so that one claim takes many jobs.
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
