-- Moves what is left in a table of somebody's own queue, and puts a view in its place: what old
-- producers insert into the view becomes a job. The table is kept as NAME_before_rota. The view
-- gets the table's rights to INSERT and SELECT. Returns the table's new name.
-- Locks: ACCESS EXCLUSIVE on the table, until the transaction ends.
create or replace function {schema}.import_view(p_table text, p_spec jsonb)
returns text
language plpgsql
as $$
declare
  v_old regclass := p_table::regclass;
  v_space text;
  v_name text;
  v_right record;
begin
  execute format('lock table %s in access exclusive mode', v_old);
  while (select m.moved from {schema}.import_move(p_table, p_spec, '(0,0)'::text, 10000) m) > 0 loop
  end loop;
  if exists (
    select from {schema}.import_preview(p_table, p_spec) p
    where p.target = 'running'
  )
  then
    raise exception 'a worker still has rows of %: stop it, and try again when they have ended',
      p_table
      using errcode = 'invalid_parameter_value';
  end if;
  select n.nspname, c.relname into v_space, v_name
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where c.oid = v_old;
  execute format('alter table %s rename to %I', v_old, left(v_name, 51) || '_before_rota');
  execute format('create view %I.%I as select * from %s limit 0', v_space, v_name, v_old);
  execute format(
    'create trigger rota_import instead of insert on %I.%I for each row '
      'execute function {schema}.import_insert(%L)',
    v_space, v_name, p_spec - 'statuses'
  );
  for v_right in
    select a.privilege_type, coalesce(r.rolname, 'public') as role
    from pg_class c
    cross join lateral aclexplode(c.relacl) a
    left join pg_roles r on r.oid = a.grantee
    where c.oid = v_old
      and a.privilege_type in ('INSERT', 'SELECT')
  loop
    execute format(
      'grant %s on %I.%I to %s',
      v_right.privilege_type, v_space, v_name,
      case when v_right.role = 'public' then 'public' else quote_ident(v_right.role) end
    );
  end loop;
  return v_old::text;
end $$;
