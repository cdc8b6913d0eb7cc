-- Says that jobs of these types, which have no idempotency_key or no group_key, lack one, because
-- their type declares it; NULL: none does.
-- Keeps: M51, no call site and no client of an older release can forget the key of a type; M60,
--   nor its group_key, without which a job would overtake those of its lane.
create or replace function {schema}.key_refusal(p_keyless text[], p_groupless text[])
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select min(concat(
    format('%s is missing: job type %L declares one', lacking.name, t.name),
    ', made of ' || nullif(array_to_string(lacking.arguments, ', '), '')
  ))
  from (
    select 'idempotency_key', k.given from unnest(p_keyless) k(given)
    union all
    select 'group_key', g.given from unnest(p_groupless) g(given)
  ) left_out(name, given)
  join {schema}.job_type t on t.name = {schema}.canonical_type(left_out.given)
  cross join lateral (
    values ('idempotency_key', t.key_arguments), ('group_key', t.group_arguments)
  ) lacking(name, arguments)
  where lacking.name = left_out.name
    and lacking.arguments is not null
$$;
