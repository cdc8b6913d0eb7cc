-- Returns what becomes of a job whose payload this release cannot read: queued, for another release
-- that was seen within the last hour and knows the type: by a worker of it, or as a deploy declared
-- it, whose producers may be there before its first worker. Without such a release it is dead.
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
