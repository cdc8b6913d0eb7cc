-- Refuses a role that may not insert jobs. For functions that act for a producer with the rights of
-- the schema's owner: without it they would let anybody take keys, lock jobs or change them.
create or replace function {schema}.producer_check()
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
  if not has_any_column_privilege(v_role, '{schema}.job', 'INSERT') then
    raise exception 'role % may not take a key: it has no INSERT on {schema}.job', v_role
      using errcode = 'insufficient_privilege';
  end if;
end $$;
