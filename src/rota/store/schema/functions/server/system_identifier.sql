-- Returns the identifier of the server; NULL: the role may not read it, as in managed services.
create or replace function {schema}.system_identifier()
returns bigint
language plpgsql stable
as $$
begin
  return (select c.system_identifier from pg_control_system() c);
exception when others then
  return null;
end $$;
