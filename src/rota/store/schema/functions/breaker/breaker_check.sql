-- Refuses what a person mistook: a breaker that no job type declares, or a key of a breaker that no
-- job type declares with keys. What stands in the table is accepted, declared or not.
create or replace function {schema}.breaker_check(p_name text, p_key text)
returns void
language plpgsql
as $$
declare
  v_names text[];
begin
  if not exists (select from {schema}.job_type t where t.breaker = p_name)
    and not exists (select from {schema}.breaker b where b.name = p_name)
  then
    v_names := array(
      select distinct t.breaker
      from {schema}.job_type t
      where t.breaker is not null
      order by t.breaker
      limit 20
    );
    raise invalid_parameter_value using message = format(
      'no job type declares the breaker %L; %s',
      p_name,
      case
        when v_names = '{}' then 'there are none: a worker declares those of its job types'
        else 'there are ' || array_to_string(v_names, ', ')
      end
    );
  end if;
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
