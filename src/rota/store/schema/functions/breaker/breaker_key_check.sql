-- Refuses a key of a breaker that no job type declares with keys: a person mistook it. A key in the
-- table is accepted, even if keys are declared no longer.
create or replace function {schema}.breaker_key_check(p_name text, p_key text)
returns void
language plpgsql
as $$
begin
  if length(p_key) not between 1 and 255 then
    raise invalid_parameter_value using message = 'a breaker''s key has 1 to 255 characters';
  end if;
  if p_key is not null and exists (
    select
    from {schema}.job_type t
    where t.breaker = p_name
    having not bool_or(coalesce(t.breaker_has_keys, true))
  ) and not exists (
    select
    from {schema}.breaker b
    where b.name = p_name
      and b.key = p_key
  )
  then
    raise invalid_parameter_value using message = format('the breaker %L has no keys', p_name);
  end if;
end $$;
