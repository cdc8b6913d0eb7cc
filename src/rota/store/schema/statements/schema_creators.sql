-- Find roles that may create objects in the schema beside Rota's own: a function of theirs that
-- fits a call better than ours would run in its place, with its caller's rights.
-- Parameters: none
-- Rows: role text (quoted; PUBLIC: every role)
-- Locks: none.
-- Keeps: M45; only Rota's owner decides what Rota's functions do.
select coalesce(quote_ident(r.rolname::text), 'PUBLIC') as role
from pg_namespace n
cross join lateral aclexplode(n.nspacl) a
left join pg_class c on c.relnamespace = n.oid and c.relname = 'job_history'
left join pg_roles r on r.oid = a.grantee
where n.nspname = :'schema'
  and a.privilege_type = 'CREATE'
  and a.grantee <> n.nspowner
  and a.grantee <> coalesce(c.relowner, current_user::regrole::oid)
  and r.rolsuper is not true
order by 1
