-- Returns what ended since p_from, which the roll-up has not added to the figures yet, per hour,
-- type and queue. What succeeded and what failed are in rows of their own.
create or replace function {schema}.figures_unfolded(p_from timestamptz)
returns table (
  hour timestamptz,
  job_type text,
  queue text,
  succeeded bigint,
  succeeded_late bigint,
  retried bigint,
  dead bigint,
  cancelled bigint,
  failed_by_release jsonb,
  waited jsonb,
  ran jsonb
)
language sql stable
as $$
  select
    e.hour, e.job_type, e.queue,
    e.succeeded, e.succeeded_late, 0, 0, e.cancelled,
    '{}'::jsonb, e.waited, e.ran
  from {schema}.history_tails(p_from) t
  cross join lateral {schema}.figures_ended(
    greatest(p_from, t.day),
    t.day + interval '24 hours',
    t.first_block
  ) e
  where t.blocks > t.first_block
  union all
  select
    f.hour, f.job_type, f.queue,
    0, 0, f.retried, f.dead, 0,
    f.failed_by_release, '{}'::jsonb, '{}'::jsonb
  from {schema}.figures_failed(p_from, 'infinity'::timestamptz) f
$$;
