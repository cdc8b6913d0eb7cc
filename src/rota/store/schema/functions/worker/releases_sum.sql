-- Adds the failures by release of two parts of an hour. It keeps the 20 releases with the most, so
-- that a row stays small if every worker has a release of its own.
create or replace function {schema}.releases_sum(p_one jsonb, p_other jsonb)
returns jsonb
language sql immutable
as $$
  select coalesce(jsonb_object_agg(most.key, most.attempts), '{}')
  from (
    select e.key, e.value::bigint as attempts
    from jsonb_each_text({schema}.buckets_sum(p_one, p_other)) e
    order by 2 desc, 1
    limit 20
  ) most
$$;
