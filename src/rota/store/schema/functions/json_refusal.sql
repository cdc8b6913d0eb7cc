-- Says what is wrong with a payload or a meta that a caller passes to a function; NULL: nothing.
-- The constraints of the table are the last guard, but their errors name only the constraint. A
-- plain INSERT is not checked here.
create or replace function {schema}.json_refusal(p_name text, p_value jsonb)
returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when jsonb_typeof(p_value) <> 'object'
      then format(
        '%s must be a JSON object, as in {"user_id": 42}, not %s',
        p_name, jsonb_typeof(p_value)
      )
    when octet_length(p_value::text) > {schema}.payload_bytes_max()
      then format(
        '%s is %s bytes, over the limit of %s: '
          || 'store the data elsewhere and pass a reference, such as its id',
        p_name, octet_length(p_value::text), {schema}.payload_bytes_max()
      )
  end
$$;
