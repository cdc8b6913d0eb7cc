-- Runs finished or dead jobs again. Each gets a new job with the same content, an origin of its own
-- and no key; the old jobs are unchanged. An erased job is refused. p_payload and p_key, for a
-- single job, replace payload and key; p_payload_version defaults to the old job's. p_meta is added
-- to the meta. `key held`: another job has the key; id and status are that job's.
-- Locks: none, or the row of the key; indexes job_pkey and job_history_id.
-- Keeps: M87; M51, one job per key.
create or replace function {schema}.job_run_again(
  p_ids bigint[],
  p_why text default null,
  p_by text default null,
  p_payload jsonb default null,
  p_payload_version smallint default null,
  p_key text default null,
  p_meta jsonb default null
)
returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_old bigint[];
  v_new bigint[];
  v_type text;
begin
  if cardinality(p_ids) <> 1 and (p_payload is not null or p_key is not null) then
    raise exception 'rota.job_run_again: a payload and a key are for one job; nothing was changed'
      using errcode = 'invalid_parameter_value';
  end if;
  v_old := array(
    select j.id
    from {schema}.jobs j
    where j.id = any (p_ids)
      and j.status in ('dead', 'succeeded', 'cancelled')
      and not {schema}.is_erased(j.payload)
    order by j.id
  );
  v_new := array(select nextval(pg_get_serial_sequence('{schema}.job', 'id')) from unnest(v_old));
  while p_key is not null and v_old <> '{}' loop
    select j.job_type into v_type
    from {schema}.jobs j
    where j.id = v_old[1];
    exit when {schema}.key_take(v_new[1], v_type, p_key);
    return query
    select v_old[1], 'key held', h.status, h.id
    from {schema}.keys_held(array[v_type], array[p_key]) h;
    if found then
      return;
    end if;
  end loop;
  insert into {schema}.keyless (job)
  select unnest(v_new);
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
    o.max_attempts, coalesce(o.meta - 'rota.waits' || p_meta, p_meta, o.meta - 'rota.waits'),
    o.group_capacity
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
  delete from {schema}.keyless k
  where k.job = any (v_new);
  if p_payload is not null or p_key is not null then
    update {schema}.job j
    set
      payload = coalesce(p_payload, j.payload),
      payload_version = coalesce(p_payload_version, j.payload_version),
      idempotency_key = p_key
    where j.id = any (v_new);
  end if;
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
revoke execute on function {schema}.job_run_again(
  bigint[], text, text, jsonb, smallint, text, jsonb
) from public;
