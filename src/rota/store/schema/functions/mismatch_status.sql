-- Returns what becomes of a job whose payload this release cannot read: queued, for another release
-- that knows the type and was alive within the last hour; without such a release it is dead.
create or replace function {schema}.mismatch_status(
  p_job_type text,
  p_mismatched_releases text[],
  p_release text
)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_release <> 'unknown'
      and exists (
        select from {schema}.workers_seen(interval '1 hour') w
        where w.release not in (p_release, 'unknown')
          and not w.release = any (coalesce(p_mismatched_releases, '{}'))
          and p_job_type = any (w.job_types)
      )
      then 'queued'
    else 'dead'
  end
$$;
