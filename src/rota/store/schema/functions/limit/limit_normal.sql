-- Returns the state of a key of a limit as of p_now. What was given away at a slower pace than
-- p_spacing shrinks to p_spacing, so that a raised limit gives starts at once; at a faster pace it
-- stands. After the server's clock was set back, its times move along. The caller writes a tat that
-- came nearer even if it gives no start: else it would shrink again at each look.
create or replace function {schema}.limit_normal(
  p_state {schema}.rate_limit_key, p_spacing bigint, p_now timestamptz
)
returns {schema}.rate_limit_key
language plpgsql immutable parallel safe
as $$
declare
  v_back interval := case
    when p_state.updated_at - p_now > interval '10 seconds'
      then p_state.updated_at - p_now
    else interval '0'
  end;
begin
  p_state.tat := p_now + interval '1 microsecond'
    * {schema}.limit_ahead(p_state.tat - v_back, p_now)
    * least(1, p_spacing::float8 / p_state.spacing);
  p_state.spacing := least(p_state.spacing, p_spacing);
  p_state.held_to := p_state.held_to - v_back;
  p_state.estimated_to := p_state.estimated_to - v_back;
  p_state.again_to := p_state.again_to - v_back;
  p_state.urgent_to := p_state.urgent_to - v_back;
  return p_state;
end $$;
