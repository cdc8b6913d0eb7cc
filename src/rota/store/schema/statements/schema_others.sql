-- Find who could replace a function of Rota's, and so run code with the rights of its callers:
-- roles beside Rota's owner and the schema's owner that may create objects in the schema, and
-- functions, operators and tables in it of another owner. Roles with all rights of Rota's owner do
-- not count.
-- Parameters: none
-- Rows: what text; cure text (SQL). At most twenty; none while there is no table and this role may
--   make none, which is another error.
-- Locks: none.
-- Keeps: M45; only Rota's owner decides what Rota's functions do.
with place as materialized (
  select
    n.oid,
    n.nspname::text as name,
    n.nspacl,
    case  -- the owner of the database, in whose place this role stands for `public`
      when pg_get_userbyid(n.nspowner)::text = 'pg_database_owner'
        then (select d.datdba from pg_database d where d.datname = current_database())
      else n.nspowner
    end as schema_owner,
    coalesce(
      (
        select c.relowner
        from pg_class c
        where c.relnamespace = n.oid
          and c.relname::text = 'job_history'
      ),
      (select r.oid from pg_roles r where r.rolname = current_user)
    ) as rotas_owner
  from pg_namespace n
  where n.nspname::text = :'schema'
    and (
      has_schema_privilege(n.oid, 'CREATE')
      or exists (
        select from pg_class c
        where c.relnamespace = n.oid
          and c.relname::text = 'job_history'
      )
    )
),
creator as (
  select
    1 as place,
    a.grantee as role,
    ' may create objects in the schema' as does,
    'REVOKE CREATE ON SCHEMA ' || p.name || ' FROM ' as cure,
    a.grantee as of_whom
  from place p
  cross join lateral aclexplode(p.nspacl) a
  where a.privilege_type = 'CREATE'
    and a.grantee <> (select n.nspowner from pg_namespace n where n.oid = p.oid)
  union all
  select
    2,
    p.schema_owner,
    ' owns the schema, and so may create objects in it',
    'ALTER SCHEMA ' || p.name || ' OWNER TO ',
    p.rotas_owner
  from place p
),
object as (
  select 3 as place, 'pg_operator'::regclass::oid as class, o.oid, o.oprowner as owner
  from pg_operator o
  where o.oprnamespace = (select p.oid from place p)
  union all
  select 4, 'pg_proc'::regclass::oid, f.oid, f.proowner
  from pg_proc f
  where f.pronamespace = (select p.oid from place p)
  union all
  select 5, 'pg_class'::regclass::oid, c.oid, c.relowner
  from pg_class c
  where c.relnamespace = (select p.oid from place p)
    and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
)
select o.what, o.cure
from (
  select
    c.place,
    case when c.role = 0::oid then 'PUBLIC' else quote_ident(pg_get_userbyid(c.role)::text) end
      || c.does as what,
    c.cure || case
      when c.of_whom = 0::oid then 'PUBLIC'
      else quote_ident(pg_get_userbyid(c.of_whom)::text)
    end as cure
  from creator c
  cross join place p
  where c.role = 0::oid
    or not pg_has_role(c.role, p.rotas_owner, 'USAGE')
  union all
  select
    o.place,
    i.type || ' ' || i.identity || ' belongs to ' || quote_ident(pg_get_userbyid(o.owner)::text),
    case
      -- A day of history, which is not to be dropped.
      when exists (select from pg_inherits h where h.inhrelid = o.oid and o.place = 5)
        then 'ALTER TABLE ' || i.identity || ' OWNER TO '
          || quote_ident(pg_get_userbyid(p.rotas_owner)::text)
      else 'DROP ' || upper(i.type) || ' ' || i.identity
    end
  from object o
  cross join place p
  cross join lateral pg_identify_object(o.class, o.oid, 0) i
  where not pg_has_role(o.owner, p.rotas_owner, 'USAGE')
) o
order by o.place, o.what
limit 20
