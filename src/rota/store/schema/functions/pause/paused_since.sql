-- Returns since when the pause of a queue, or of everything, is in force; NULL: it is not. A second
-- pause keeps the time of the first and replaces who, why and until, so that a person can take over
-- a pause. The pause of a schedule follows the same rule, without `until`.
create or replace function {schema}.paused_since(
  p_paused_at timestamptz,
  p_paused_until timestamptz
)
returns timestamptz
language sql stable
as $$
  select case when {schema}.is_in_force(p_paused_at, p_paused_until) then p_paused_at end
$$;
