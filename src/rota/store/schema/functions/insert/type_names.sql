-- Returns the names, former ones too, under which jobs of a type run.
create or replace function {schema}.type_names(p_type text)
returns text[]
language sql stable
as $$
  select array(
    select n.name
    from {schema}.job_type t
    cross join unnest(t.aliases || t.name) n(name)
    where t.name = p_type
      and {schema}.canonical_type(n.name) = t.name
  )
$$;
