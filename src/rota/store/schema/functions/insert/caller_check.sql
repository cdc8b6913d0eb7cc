-- Refuses a role that lacks a right on a table or view, or on one of its columns; otherwise true,
-- for a WHERE. For functions with the rights of the schema's owner: without it, whoever may use the
-- schema could take keys, lock or change jobs, or learn of them.
create or replace function {schema}.caller_check(p_relation text, p_privilege text)
returns boolean
language plpgsql stable
as $$
begin
  if not has_any_column_privilege({schema}.caller(), '{schema}.' || p_relation, p_privilege) then
    raise exception 'role % may not do this: it has no % on {schema}.%',
      {schema}.caller(), p_privilege, p_relation
      using errcode = 'insufficient_privilege';
  end if;
  return true;
end $$;
