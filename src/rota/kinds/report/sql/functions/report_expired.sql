-- Returns up to 1,000 runs after the id p_after whose files are to be deleted: the expired, and the
-- unready that began a month ago.
-- Locks: none; index report_run_expires.
create or replace function {schema}.report_expired(p_after bigint default null)
returns table (run bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.id
  from {schema}.report_run r
  where r.id > coalesce(p_after, 0)
    and (
      r.expires_at <= {schema}.clock()
      or r.finished_at is null and r.created_at <= {schema}.clock() - interval '30 days'
    )
  order by r.id
  limit 1000
$$;
revoke execute on function {schema}.report_expired(bigint) from public;
