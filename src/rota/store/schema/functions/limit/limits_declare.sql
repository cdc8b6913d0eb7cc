-- Declares rate limits: an array of objects with name, starts, per_s, burst and keyed. A person's
-- figures stand until code declares new figures. A release that is not the newest only adds limits,
-- unless it is about to be deployed (p_is_deploy): else two releases overwrite each other.
-- Locks: the rows of the limits that change, in the order of their names.
-- Keeps: M62, one budget for all types and workers.
create or replace function {schema}.limits_declare(
  p_limits jsonb,
  p_release text,
  p_is_deploy boolean
)
returns void
language plpgsql
as $$
declare
  v_may_change boolean := p_is_deploy
    or ({schema}.release_newest(p_release) = p_release) is not false;
begin
  insert into {schema}.rate_limit as l (
    name, starts, per, burst, declared, changed_by
  )
  select
    d.value ->> 'name',
    (d.value ->> 'starts')::int,
    make_interval(secs => (d.value ->> 'per_s')::float8),
    (d.value ->> 'burst')::int,
    d.value - 'name',
    'release ' || p_release
  from jsonb_array_elements(p_limits) d
  order by d.value ->> 'name'
  on conflict (name) do update
  set
    starts = excluded.starts,
    per = excluded.per,
    burst = excluded.burst,
    declared = excluded.declared,
    changed_at = {schema}.clock(),
    changed_by = excluded.changed_by,
    changed_why = null
  where v_may_change
    and l.declared is distinct from excluded.declared;
end $$;
