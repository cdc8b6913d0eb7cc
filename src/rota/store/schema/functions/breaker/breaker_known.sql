-- Refuses a breaker's name that no declared job type has: a person mistyped it.
create or replace function {schema}.breaker_known(p_name text)
returns void
language plpgsql
as $$
declare
  v_names text[];
begin
  if exists (select from {schema}.job_type t where t.breaker = p_name)
    or exists (select from {schema}.breaker b where b.name = p_name)
  then
    return;
  end if;
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
end $$;
