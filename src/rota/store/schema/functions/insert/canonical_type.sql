-- Returns the name under which a type's keys and settings are stored; a former name leads to the
-- type that has it as an alias. SECURITY DEFINER: a reader of the view has no right on job_type.
create or replace function {schema}.canonical_type(p_name text)
returns text
language sql stable parallel safe security definer
as $$
  select coalesce(
    (
      select t.name
      from {schema}.job_type t
      where p_name = any (t.aliases)
      order by t.declared_at desc
      limit 1
    ),
    p_name
  )
$$;
