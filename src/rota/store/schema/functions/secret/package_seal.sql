-- Replaces the old sealed value by the new one in the rows of a package's table. Returns how many.
-- Locks: the rows.
create or replace function {schema}.package_seal(p_place text, p_old jsonb, p_new jsonb)
returns int
language plpgsql
as $$
declare
  v_count int;
begin
  execute format('update {schema}.%I t set sealed = $2 where t.sealed = $1', p_place)
  using p_old, p_new;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
