-- Lists runs, the newest first, each with its state: queued, running, failed (a job is dead),
-- cancelled, ready or expired; its finished pages, and the dead job's error. p_id: only this run;
-- p_name: only this report's runs.
-- Locks: none; indexes report_run_pkey and report_run_name.
create or replace function {schema}.report_runs(
  p_id bigint default null,
  p_name text default null,
  p_limit int default 100
)
returns table (
  id bigint,
  name text,
  params text,
  status text,
  pages_done int,
  pages int,
  rows bigint,
  file text,
  size bigint,
  checksum text,
  asked_by text,
  created_at timestamptz,
  finished_at timestamptz,
  expires_at timestamptz,
  error text,
  dead_job bigint,
  batch bigint,
  job bigint
)
language sql stable security definer
set search_path = pg_catalog, pg_temp set jit = off
as $$
  select
    r.id, r.name, r.params::text,
    case
      when r.expires_at <= {schema}.clock() then 'expired'
      when r.finished_at is not null then 'ready'
      when r.cancelled_at is not null or one.status = 'cancelled' or b.cancelled > 0
        then 'cancelled'
      when dead.id is not null then 'failed'
      when r.pages is null then 'queued'
      else 'running'
    end,
    case when r.pages is not null then (
      select count(f.rows)::int from {schema}.report_file f where f.run = r.id
    ) end,
    r.pages, r.rows, r.file, r.size, r.checksum, r.asked_by,
    r.created_at, r.finished_at, r.expires_at,
    dead.last_error, dead.id, r.batch, r.job
  from (
    select q.*
    from {schema}.report_run q
    where q.id = coalesce(p_id, q.id)
      and q.name = coalesce(p_name, q.name)
    order by q.id desc
    limit coalesce(p_limit, 100)
  ) r
  left join {schema}.batches b on b.id = r.batch
  left join lateral (
    select v.status
    from {schema}.jobs v
    where v.id = r.job
    limit 1
  ) one on r.finished_at is null
  left join lateral (
    select j.id, j.last_error
    from {schema}.job j
    where r.finished_at is null
      and j.status = 'dead'
      and (j.id in (r.job, b.then_job) or j.batch = r.batch)
    order by j.id
    limit 1
  ) dead on true
  order by r.id desc
$$;
revoke execute on function {schema}.report_runs(bigint, text, int) from public;
