-- Returns whether a job that holds a place of its lane keeps it in this status. A job that waits
-- for its next attempt keeps it, unless its type says on_retry = 'release'; a dead job frees it,
-- unless its type says on_dead = 'halt'. A job that a limit or a breaker handed back (p_waits_for)
-- always keeps it: it has not begun.
-- Keeps: M60, back-off lets no later job of the lane pass.
create or replace function {schema}.lane_keeps(
  p_job_type text,
  p_status text,
  p_delay_s float8,
  p_waits_for text
)
returns boolean
language sql stable
as $$
  select case
    when p_status = 'dead'
      then coalesce(t.on_dead = 'halt', false)
    when p_status = 'failed' or p_delay_s > 0 and p_waits_for is null
      then coalesce(t.on_retry = 'hold', true)
    else true
  end
  from (select) always
  left join {schema}.job_type t on t.name = {schema}.canonical_type(p_job_type)
$$;
