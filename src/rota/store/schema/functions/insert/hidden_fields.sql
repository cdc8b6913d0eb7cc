-- Returns the masked fields of a type's payloads (NULL: of all types): secret and personal
-- arguments, now or ever. NULL: none. SECURITY DEFINER: a reader may not read job_type.
create or replace function {schema}.hidden_fields(p_job_type text)
returns text[]
language sql stable parallel safe security definer
as $$
  select array_agg(distinct field.name)
  from {schema}.job_type t
  cross join lateral unnest(t.secret_fields || t.personal_fields) field(name)
  where p_job_type is null
    or t.name = p_job_type
    or p_job_type = any (t.aliases)
$$;
