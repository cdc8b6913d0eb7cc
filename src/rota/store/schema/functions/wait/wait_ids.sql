-- Returns from a job's meta the jobs that it waits for, or waited for last (p_which: jobs), or the
-- jobs of its earlier waits (before); none from a meta that Rota did not write.
create or replace function {schema}.wait_ids(p_meta jsonb, p_which text)
returns bigint[]
language sql immutable parallel safe
as $$
  select coalesce(array_agg(a.id::bigint order by a.place), '{}')
  from (select p_meta #> array['rota.waits', p_which] as ids) m
  cross join lateral jsonb_array_elements_text(
    case when jsonb_typeof(m.ids) = 'array' then m.ids else '[]' end
  ) with ordinality a(id, place)
  where a.id ~ '^[0-9]{1,18}$'
$$;
