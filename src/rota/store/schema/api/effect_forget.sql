-- Forgets the `about` and the result of all effects about p_about; they stay done, so nobody
-- repeats them. Returns how many. The action log does not name p_about.
-- Locks: the rows of the effects; index effect_about.
-- Keeps: M45, a person's data can be erased; M87, who and why.
create or replace function {schema}.effect_forget(
  p_about jsonb,
  p_why text default null,
  p_by text default null
)
returns int
language plpgsql security definer
as $$
declare
  v_count int;
begin
  if jsonb_typeof(p_about) is distinct from 'object' or p_about = '{}' then
    raise exception 'rota.effect_forget: p_about must be an object with names'
      using errcode = 'invalid_parameter_value';
  end if;
  update {schema}.effect e
  set about = null, result = null
  where e.about @> p_about;
  get diagnostics v_count = row_count;
  insert into {schema}.action (verb, by, why, detail)
  values (
    'forget',
    coalesce({schema}.one_line(p_by, 200), session_user),
    {schema}.one_line(p_why, 500),
    jsonb_build_object('effects', v_count)
  );
  return v_count;
end $$;
revoke execute on function {schema}.effect_forget(jsonb, text, text) from public;
