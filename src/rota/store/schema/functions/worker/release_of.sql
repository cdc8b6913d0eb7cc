-- Returns the release of a worker.
create or replace function {schema}.release_of(p_worker text)
returns text
language sql stable
as $$
  select coalesce(
    (select w.release from {schema}.worker w where w.name = p_worker),
    'unknown'
  )
$$;
