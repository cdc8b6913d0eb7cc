-- Says whether a trigger of the user's runs before an INSERT of a job: it may change the row, or
-- leave it out.
create or replace function {schema}.job_has_triggers()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from pg_trigger t
    where t.tgrelid = '{schema}.job'::regclass::oid
      and t.tgtype & 7 = 7  -- for each row, before, at an INSERT
      and t.tgname not in ('job_insert_fill'::name, 'job_insert_run'::name)
  )
$$;
