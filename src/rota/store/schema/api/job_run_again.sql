-- Runs finished or dead jobs again. Each gets a new job with the same content, an origin of its own
-- and no key. The old jobs are unchanged.
-- Locks: none; indexes job_pkey and job_history_id.
-- Keeps: M87.
create or replace function {schema}.job_run_again(
  p_ids bigint[],
  p_why text default null,
  p_by text default null
)
returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_old bigint[];
  v_new bigint[];
begin
  v_old := array(
    select j.id
    from {schema}.jobs j
    where j.id = any (p_ids)
      and j.status in ('dead', 'succeeded', 'cancelled')
    order by j.id
  );
  v_new := array(select nextval(pg_get_serial_sequence('{schema}.job', 'id')) from unnest(v_old));
  perform set_config('{schema}.needs_no_key', 'on', true);
  insert into {schema}.job (
    id,
    {content},
    run_at,
    expires_at,
    max_attempts, meta, group_capacity
  )
  select
    p.new_id,
    {o.content},
    {schema}.clock(),
    {schema}.expires_anew(o.expires_at, o.run_at, o.created_at, o.claims),
    o.max_attempts, o.meta - 'rota.waits', o.group_capacity
  from unnest(v_old, v_new) p(id, new_id)
  join lateral (
    select
      {j.content},
      j.expires_at, j.run_at, j.created_at, j.claims, j.max_attempts, j.meta, j.group_capacity
    from {schema}.job j
    where j.id = p.id
    union all
    select
      {h.content},
      h.expires_at, h.run_at, h.created_at, h.claims, h.max_attempts, h.meta, h.group_capacity
    from {schema}.job_history h
    where h.id = p.id
    limit 1
  ) o on true;
  perform set_config('{schema}.needs_no_key', '', true);
  insert into {schema}.action (verb, job, by, why, detail)
  select
    'run_again',
    p.id,
    coalesce({schema}.one_line(p_by, 200), session_user),
    {schema}.one_line(p_why, 500),
    jsonb_build_object('run_again_as', p.new_id)
  from unnest(v_old, v_new) p(id, new_id)
  order by p.id;
  return query
  select a.id, a.answer, a.status, coalesce(p.new_id, a.new_id)
  from {schema}.job_answers(p_ids, v_old, 'done'::text) a
  left join unnest(v_old, v_new) p(id, new_id) on p.id = a.id
  order by a.id;
end $$;
revoke execute on function {schema}.job_run_again(bigint[], text, text) from public;
