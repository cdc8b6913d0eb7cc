-- Moves dead jobs, whose rows the caller has locked, to history. p_as goes with p_ids: what each resolution says besides by, at and why.
create or replace function dead_resolve(p_ids bigint[], p_as jsonb[], p_why text, p_by text) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path from current as $$
begin
  with gone as (
    delete from job j where j.id = any (p_ids) returning j.*)
  insert into job_history
  select put.*
  from gone g join unnest(p_ids, p_as) a(id, detail) on a.id = g.id
  cross join lateral jsonb_populate_record(null::job_history, to_jsonb(g) || jsonb_build_object('finished_at', clock(),
    'resolution', jsonb_strip_nulls(jsonb_build_object('by', p_by, 'at', clock(), 'why', p_why)) || a.detail)) put;
  insert into action (verb, job, by, why, detail)
  select case when a.detail ? 'requeued_as' then 'requeue' else 'ignore' end, a.id, p_by, p_why,
    case when a.detail ? 'requeued_as' then a.detail end
  from unnest(p_ids, p_as) a(id, detail) order by a.id;
end $$;
