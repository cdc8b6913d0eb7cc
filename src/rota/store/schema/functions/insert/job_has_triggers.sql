-- Returns whether a user's trigger runs at an INSERT of a job: it may change the row, leave it out,
-- insert other jobs, or ask who inserts.
create or replace function {schema}.job_has_triggers()
returns boolean
language sql stable
as $$
  select exists (
    select from pg_trigger t
    where t.tgrelid = '{schema}.job'::regclass::oid
      and t.tgtype & 4 = 4  -- at an INSERT
      and not t.tgisinternal
      and t.tgname not in ('job_insert_check', 'job_insert_fill')
  )
$$;
