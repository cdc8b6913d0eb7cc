-- Records why the job of a due tick was not enqueued, if the schedule is unchanged since it was
-- read and the reason is new. The tick stays due: a worker tries again.
-- Locks: the row of the schedule.
-- Keeps: M82, a schedule that does not fire says why.
create or replace function {schema}.schedule_fail(
  p_name text,
  p_next_run_at timestamptz,
  p_since timestamptz,
  p_why text
)
returns void
language sql
as $$
  update {schema}.schedule s
  set last_error = left(p_why, 500)
  where s.name = p_name
    and s.next_run_at is not distinct from p_next_run_at
    and s.since = p_since
    and s.last_error is distinct from left(p_why, 500)
$$;
