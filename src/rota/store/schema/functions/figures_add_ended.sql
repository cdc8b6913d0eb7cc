-- Adds what ended in [p_from, p_to) to the figures, as figures_ended reads it (for stats_roll_up).
create or replace function {schema}.figures_add_ended(
  p_from timestamptz,
  p_to timestamptz,
  p_first bigint
)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.stat_hour as s (
    hour, job_type, queue, succeeded, succeeded_late, cancelled, waited, ran
  )
  select
    e.hour, e.job_type, e.queue,
    e.succeeded, e.succeeded_late, e.cancelled, e.waited, e.ran
  from {schema}.figures_ended(p_from, p_to, p_first) e
  on conflict (hour, job_type, queue) do update
  set
    succeeded = s.succeeded + excluded.succeeded,
    succeeded_late = s.succeeded_late + excluded.succeeded_late,
    cancelled = s.cancelled + excluded.cancelled,
    waited = {schema}.buckets_sum(s.waited, excluded.waited),
    ran = {schema}.buckets_sum(s.ran, excluded.ran)
$$;
