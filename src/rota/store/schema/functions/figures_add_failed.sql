-- Adds the attempts that failed in [p_from, p_to) to the figures (for stats_roll_up).
create or replace function {schema}.figures_add_failed(p_from timestamptz, p_to timestamptz)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into {schema}.stat_hour as s (hour, job_type, queue, retried, dead, failed_by_release)
  select f.hour, f.job_type, f.queue, f.retried, f.dead, f.failed_by_release
  from {schema}.figures_failed(p_from, p_to) f
  on conflict (hour, job_type, queue) do update
  set
    retried = s.retried + excluded.retried,
    dead = s.dead + excluded.dead,
    failed_by_release = {schema}.releases_sum(s.failed_by_release, excluded.failed_by_release)
$$;
