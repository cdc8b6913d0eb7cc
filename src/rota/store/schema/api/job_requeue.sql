-- Requeues dead jobs. Each becomes a new job with the same origin, which takes over the key, the
-- progress and the place in the lane. The old job is archived with its content, and says who
-- requeued it, when, why and as which job. p_payload, for a single job, replaces the payload;
-- p_payload_version defaults to the type's. p_meta is added to the meta. With p_fresh the new job
-- forgets finished steps and waits, and starts over. new_id is the id of the new job or, of a
-- refused job, the id as which it was requeued before. A key that was freed when the job died
-- (key_scope 'live') is taken again, unless another job (new_id) has it: `key held`.
-- Locks: the jobs, in id order; index job_pkey. Then their keys and effects; index effect_job.
-- Keeps: M44, the old job keeps its content and its outcome; M51, one job has the key.
create or replace function {schema}.job_requeue(
  p_ids bigint[],
  p_why text default null,
  p_by text default null,
  p_payload jsonb default null,
  p_payload_version smallint default null,
  p_fresh boolean default false,
  p_meta jsonb default null
)
returns table (id bigint, answer text, status text, new_id bigint)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_by text := coalesce({schema}.one_line(p_by, 200), session_user);
  v_as text := case when p_payload is null then 'requeued' else 'fixed' end;
  v_wrong text := case
    when p_payload is not null and cardinality(p_ids) <> 1
      then format('a corrected payload is for one job, not for %s', cardinality(p_ids))
    when p_payload_version not between 1 and 32767
      then format('p_payload_version must be from 1 to 32767, not %s', p_payload_version)
  end;
  v_dead bigint[];
  v_new bigint[];
  v_held jsonb := '{}';
  v_holder bigint;
  v_of record;
begin
  if v_wrong is not null then
    raise exception 'rota.job_requeue: %; nothing was changed', v_wrong
      using errcode = 'invalid_parameter_value';
  end if;
  perform {schema}.partitions_ensure(0);
  v_dead := {schema}.dead_lock(p_ids);
  for v_of in
    select d.id, d.job_type, d.idempotency_key as key
    from {schema}.job d
    join {schema}.job_type t on t.name = {schema}.canonical_type(d.job_type)
    where d.id = any (v_dead)
      and d.idempotency_key is not null
      and t.key_scope = 'live'
    order by t.name collate "C", d.idempotency_key collate "C", d.id
  loop
    while not {schema}.key_take(v_of.id, v_of.job_type, v_of.key) loop
      select h.id into v_holder
      from {schema}.keys_held(array[v_of.job_type], array[v_of.key]) h;
      if found then
        v_held := v_held || jsonb_build_object(v_of.id, v_holder);
        exit;
      end if;
    end loop;
  end loop;
  v_dead := array(select d.id from unnest(v_dead) d(id) where not v_held ? d.id::text);
  v_new := array(select nextval('{schema}.job_id_seq') from unnest(v_dead));
  -- Without the key: the old job still holds it.
  insert into {schema}.keyless (job)
  select unnest(v_new);
  insert into {schema}.job (
    id, origin_id,
    {content},
    run_at,
    expires_at,
    max_attempts, progress, meta, group_capacity, in_lane, batch
  )
  select
    p.new_id, coalesce(d.origin_id, d.id),
    {new.content},
    {schema}.clock(),
    {schema}.expires_anew(d.expires_at, d.run_at, d.created_at, d.claims),
    d.max_attempts, d.progress,
    coalesce(m.meta || p_meta, p_meta, m.meta),
    d.group_capacity, nullif(d.in_lane, false), d.batch
  from unnest(v_dead, v_new) p(id, new_id)
  join {schema}.job d on d.id = p.id
  cross join lateral jsonb_populate_record(
    d,
    case
      when p_payload is not null
        then jsonb_build_object(
          'payload', p_payload,
          'payload_version',
          coalesce(
            p_payload_version,
            (
              select t.version
              from {schema}.job_type t
              where t.name = {schema}.canonical_type(d.job_type)
            )
          )
        )
      else '{}'
    end
  ) new
  cross join lateral (
    select case when p_fresh then d.meta - 'rota.waits' else d.meta end as meta
  ) m;
  delete from {schema}.keyless k
  where k.job = any (v_new);
  with moved as (
    update {schema}.idempotency i
    set
      job = p.new_id,
      expires_at = null
    from unnest(v_dead, v_new) p(id, new_id)
    join {schema}.job d on d.id = p.id
    where d.idempotency_key is not null
      and i.job_type in (d.job_type, {schema}.canonical_type(d.job_type))
      and i.key = d.idempotency_key
      and i.job = d.id
    returning i.job, i.key
  )
  update {schema}.job j
  set idempotency_key = m.key
  from moved m
  where j.id = m.job;
  if p_fresh then
    delete from {schema}.effect e
    using {schema}.job d
    where d.id = any (v_dead)
      and e.origin_id = coalesce(d.origin_id, d.id);
  end if;
  -- Retention keeps effects of the new job. No claim has the number 0: uncertain effects stay so.
  update {schema}.effect e
  set
    job = p.new_id,
    claim = 0
  from unnest(v_dead, v_new) p(id, new_id)
  where e.job = p.id;
  perform {schema}.batches_count_dead(v_dead, -1);
  insert into {schema}.batch_part (batch, first_id, last_id)
  select j.batch, j.id, j.id
  from {schema}.job j
  where j.id = any (v_new)
    and j.batch is not null;
  perform {schema}.dead_resolve(
    v_dead,
    array(
      select
        jsonb_build_object('as', v_as, 'requeued_as', n.id)
          || case when p_fresh then '{"fresh": true}' else '{}' end::jsonb
      from unnest(v_new) n(id)
    ),
    {schema}.one_line(p_why, 500),
    v_by
  );
  return query
  select
    a.id,
    case when h.holder is null then a.answer else 'key held' end,
    a.status,
    coalesce(v_new[array_position(v_dead, h.holder)], h.holder, a.new_id)
  from {schema}.job_answers(p_ids, v_dead, 'done'::text) a
  cross join lateral (select (v_held ->> a.id::text)::bigint) h(holder);
end $$;
revoke execute on function {schema}.job_requeue(
  bigint[], text, text, jsonb, smallint, boolean, jsonb
) from public;
