-- Takes back what effect_begin announced, because it certainly did not happen, such as after a
-- refused connection. The next attempt begins it anew.
create or replace function {schema}.effect_withdraw(id bigint, claims int, key text)
returns void
language plpgsql security definer
as $$
begin
  if not {schema}.effect_end(
    effect_withdraw.id, effect_withdraw.claims, 0, effect_withdraw.key, false, false, null::json
  ) then
    perform {schema}.lease_lost(effect_withdraw.id, effect_withdraw.claims);
  end if;
end $$;
revoke execute on function {schema}.effect_withdraw(bigint, int, text) from public;
