-- Lets jobs compete again that the caps of these keys ('type NAME', 'queue NAME') have room for
-- after a change: at most a thousand each, a sweep does the rest. Counts running jobs in a new cap.
-- It takes no stripe: its transaction may have any length.
-- Locks: the rows that it changes, with SKIP LOCKED; indexes job_waits and job_lease.
create or replace function {schema}.caps_release(p_keys text[])
returns void
language plpgsql
as $$
declare
  v_key text;
begin
  if exists (select from unnest(p_keys) k(key) where {schema}.cap_free(k.key) is not null) then
    perform {schema}.caps_count();
  end if;
  foreach v_key in array p_keys loop
    perform {schema}.cap_release(v_key, least(1000, {schema}.cap_free(v_key)), true);
  end loop;
end $$;
