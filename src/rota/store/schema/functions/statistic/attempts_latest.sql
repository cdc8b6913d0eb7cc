-- Returns the last p_limit attempts of the last day that did not succeed, newest first.
create or replace function {schema}.attempts_latest(p_limit int)
returns table (
  job bigint,
  job_type text,
  attempt int,
  outcome text,
  error_type text,
  message text,
  finished_at timestamptz
)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select
    a.job, a.job_type, a.attempt,
    a.outcome, a.error_type, a.message, a.finished_at
  from {schema}.attempt a
  where a.finished_at > {schema}.clock() - interval '1 day'
  order by a.finished_at desc
  limit p_limit
$$;
