-- Returns the release whose first worker started last, among those that are at work, else among
-- all. p_here names a release that is at work, too.
create or replace function release_newest(p_here text default null)
returns text
language sql stable
set search_path from current
as $$
  select r.name
  from release r
  order by
    coalesce(r.name = p_here, false) or release_at_work(r.name) desc,
    r.started_at desc,
    r.name desc
  limit 1
$$;
