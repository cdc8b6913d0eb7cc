-- Disables the schedules of code that the newest release has not declared for an hour; none if that
-- release has no name, because it cannot be known to be newer. Returns their names.
-- Locks: the rows of those schedules.
-- Keeps: a removed schedule stops, and two releases side by side stop nothing.
create or replace function {schema}.schedules_disable()
returns setof text
language sql
as $$
  update {schema}.schedule d
  set disabled_at = {schema}.clock()
  where d.name = any (array(
    select s.name
    from {schema}.release r
    join {schema}.schedule s
      on s.origin = 'code'
      and s.disabled_at is null
      and s.release <> r.name
      and s.declared_at <= {schema}.clock() - interval '1 hour'
    where r.name = {schema}.release_newest()
      and r.name <> 'unknown'
      and r.started_at <= {schema}.clock() - interval '1 hour'
    for no key update of s skip locked  -- a worker that starts takes these locks in another order
  ))
  returning d.name
$$;
