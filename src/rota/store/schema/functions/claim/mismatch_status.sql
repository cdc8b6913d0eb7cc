-- Returns the next status of a job whose payload this release cannot read: queued, if a worker or a
-- deploy of another release that knows the type was seen within the last hour; else dead.
create or replace function {schema}.mismatch_status(
  p_job_type text,
  p_mismatched_releases text[],
  p_release text
)
returns text
language sql stable
as $$
  select case
    when p_release <> 'unknown'
      and exists (
        select from (
          select w.release
          from {schema}.workers_seen(interval '1 hour') w
          where p_job_type = any (w.job_types)
          union all
          select r.name
          from {schema}.release r
          where r.declared_at > {schema}.clock() - interval '1 hour'
            and p_job_type = any (r.job_types)
        ) seen(release)
        where seen.release not in (p_release, 'unknown')
          and not seen.release = any (coalesce(p_mismatched_releases, '{}'))
      )
      then 'queued'
    else 'dead'
  end
$$;
