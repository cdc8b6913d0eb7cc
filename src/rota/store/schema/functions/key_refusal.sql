-- Says that jobs of these types, which have no key, lack one, because their type declares it; NULL:
-- none does. Who runs an old job again sets needs_no_key: its key may be another job's by now.
-- Keeps: M51, no call site and no client of an older release can forget the key of a type.
create or replace function {schema}.key_refusal(p_job_types text[])
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select min(concat(
    format('idempotency_key is missing: job type %L declares one', t.name),
    ', made of ' || nullif(array_to_string(t.key_arguments, ', '), '')
  ))
  from unnest(p_job_types) keyless(given)
  join {schema}.job_type t
    on t.name = {schema}.canonical_type(keyless.given)
    and t.key_arguments is not null
  where coalesce(current_setting('{schema}.needs_no_key', true), '') = ''
$$;
