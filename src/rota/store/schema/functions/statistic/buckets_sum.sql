-- Adds counts by bucket, or by release. The function has no search_path: the planner inlines it.
create or replace function {schema}.buckets_sum(p_one jsonb, p_other jsonb)
returns jsonb
language sql immutable parallel safe
as $$
  select coalesce(jsonb_object_agg(b.key, b.jobs), '{}')
  from (
    select e.key, sum(e.value::bigint) as jobs
    from (
      select * from jsonb_each_text(p_one)
      union all
      select * from jsonb_each_text(p_other)
    ) e
    group by e.key
  ) b
$$;
