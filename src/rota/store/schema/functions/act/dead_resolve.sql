-- Archives dead jobs by a person's decision. The caller has locked their rows. p_as runs parallel
-- to p_ids: the fields of each resolution besides by, at and why.
create or replace function {schema}.dead_resolve(
  p_ids bigint[],
  p_as jsonb[],
  p_why text,
  p_by text
)
returns void
language plpgsql
as $$
begin
  perform {schema}.job_to_history(
    p_ids,
    'dead'::text,
    array(
      select
        jsonb_strip_nulls(jsonb_build_object('by', p_by, 'at', {schema}.clock(), 'why', p_why))
          || a.detail
      from unnest(p_as) with ordinality a(detail, place)
      order by a.place
    )
  );
  insert into {schema}.action (verb, job, by, why, detail)
  select
    case when a.detail ? 'requeued_as' then 'requeue' else 'archive' end,
    a.id,
    p_by,
    p_why,
    case when a.detail ? 'requeued_as' then a.detail end
  from unnest(p_ids, p_as) a(id, detail)
  order by a.id;
end $$;
