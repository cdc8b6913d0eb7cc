-- Declares the schedules of a release whose worker starts, or that is about to be deployed
-- (p_is_deploy), and notes its job types, by all their names. p_schedules is as in schedules_write,
-- and so is what stays. A worker of a release that is not the newest changes no schedule: two
-- releases side by side must not overwrite each other in turn. Returns how many are declared.
-- Locks: the rows of the schedules, in the order of their names.
-- Keeps: an operator's pause and an unchanged schedule's next_run_at survive a deploy.
create or replace function {schema}.schedules_declare(
  p_schedules jsonb,
  p_release text,
  p_job_types text[],
  p_is_deploy boolean
)
returns int
language plpgsql
as $$
begin
  insert into {schema}.release as r (name, started_at, job_types)
  values (p_release, {schema}.clock(), p_job_types)
  on conflict (name) do update
  set
    declared_at = excluded.started_at,
    -- Two Apps may have a release of one name.
    job_types = array(
      select distinct known
      from unnest(r.job_types || excluded.job_types) known
      order by known
    ),
    started_at = case
      when {schema}.release_at_work(p_release) or not exists (
        select from {schema}.release o
        where o.name <> p_release
          and o.started_at >= r.started_at
      )
      then r.started_at
      else excluded.started_at
    end;
  if not p_is_deploy and {schema}.release_newest(p_release) <> p_release then
    return 0;
  end if;
  return (
    select count(*)
    from {schema}.schedules_write(p_schedules, 'code'::text, p_release)
  );
end $$;
