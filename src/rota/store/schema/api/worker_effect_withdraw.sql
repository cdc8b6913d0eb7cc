-- Takes back what worker_effect_begin announced, because it certainly did not happen, such as after
-- a refused connection. The next attempt begins it anew.
create or replace function {schema}.worker_effect_withdraw(id bigint, claims int, key text)
returns void
language plpgsql security definer
as $$
begin
  if not {schema}.effect_end(id, claims, 0, key, false, false, null::json) then
    perform {schema}.lease_lost(id, claims);
  end if;
end $$;
revoke execute on function {schema}.worker_effect_withdraw(bigint, int, text) from public;
