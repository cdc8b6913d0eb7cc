-- Returns what an action did to each job (p_as for the jobs in p_done), and its status now. An
-- archived dead job is `dead` here, with the id as which it was requeued.
create or replace function {schema}.job_answers(p_ids bigint[], p_done bigint[], p_as text)
returns table (id bigint, answer text, status text, new_id bigint)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select
    given.id,
    case
      when given.id = any (p_done) then p_as
      when stands.status is null then 'not found'
      else 'refused'
    end,
    stands.status,
    stands.new_id
  from (select distinct i.id from unnest(p_ids) i(id)) given
  left join lateral (
    select j.status, null::bigint as new_id
    from {schema}.job j
    where j.id = given.id
    union all
    select h.status, (h.resolution ->> 'requeued_as')::bigint
    from {schema}.job_history h
    where h.id = given.id
    limit 1
  ) stands on true
  order by given.id
$$;
