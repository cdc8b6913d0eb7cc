-- Returns the release whose first worker started last, among those at work, or among all if none
-- is. p_here names a release that counts as at work.
create or replace function {schema}.release_newest(p_here text default null)
returns text
language sql stable
as $$
  select r.name
  from {schema}.release r
  order by
    coalesce(r.name = p_here, false) or {schema}.release_at_work(r.name) desc,
    r.started_at desc,
    r.name desc
  limit 1
$$;
