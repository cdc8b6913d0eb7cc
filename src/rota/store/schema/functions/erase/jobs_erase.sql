-- Erases the content of jobs; types, times, outcomes and hashes of their keys stay. A waiting job
-- is cancelled first, a dead job archived; a running job is noted for a later pass. A package's
-- function NAME_erase is called while the payloads are still there. Returns the erased jobs.
-- Locks: the rows of the jobs, in id order; then the rows that it writes; indexes job_pkey,
--   job_history_id, attempt_job, action_job, effect_job, effect_step and idempotency_pkey.
-- Keeps: M45, a person's data can be erased; M51, as keys_erase.
create or replace function {schema}.jobs_erase(p_ids bigint[], p_by text)
returns setof bigint
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_today text := to_char({schema}.clock() at time zone 'UTC', 'YYYY-MM-DD');
  v_dead bigint[];
  v_ids bigint[];
  v_anew bigint[];
  v_package text;
begin
  perform {schema}.partitions_ensure(0);
  v_dead := {schema}.dead_lock(p_ids);
  perform {schema}.keys_erase(p_ids);  -- before they end, which frees keys
  perform {schema}.dead_resolve(
    v_dead,
    array_fill('{"as": "archived"}'::jsonb, array[cardinality(v_dead)]),
    'erased'::text,
    p_by
  );
  perform {schema}.job_cancel(
    array(select j.id from {schema}.job j where j.id = any (p_ids) and j.status <> 'running'),
    'erased'::text, p_by
  );
  insert into {schema}.erasure (job)
  select j.id
  from {schema}.job j
  where j.id = any (p_ids)
  on conflict do nothing;
  v_ids := array(
    select i.id
    from unnest(p_ids) i(id)
    where not exists (select from {schema}.job j where j.id = i.id)
  );
  -- The jobs as which they were requeued meanwhile are erased too.
  with done as (
    delete from {schema}.erasure e
    where e.job = any (v_ids)
    returning e.job
  )
  insert into {schema}.erasure (job)
  select (h.resolution ->> 'requeued_as')::bigint
  from done d
  join {schema}.job_history h on h.id = d.job
  where h.resolution ? 'requeued_as'
  on conflict do nothing;
  update {schema}.effect e
  set
    key = {schema}.key_hash(e.key),
    about = null,
    result = null
  from (
    select o.key, o.origin_id
    from {schema}.effect o
    where o.job = any (v_ids)
    union
    select s.key, s.origin_id
    from {schema}.job_history h
    join {schema}.effect s on s.origin_id = coalesce(h.origin_id, h.id)
    where h.id = any (v_ids)
      and s.place is not null
      and not exists (select from {schema}.job j where j.id = s.job)
  ) of
  where e.key = of.key
    and e.origin_id = of.origin_id;
  for v_package in
    select m.package
    from {schema}.migration m
    join {schema}.definition d on d.name = m.package || '_erase'
    where m.package <> ''
    group by m.package
    order by m.package
  loop
    execute format('select {schema}.%I($1)', v_package || '_erase') using v_ids;
  end loop;
  with anew as (
    update {schema}.job_history h
    set
      payload = jsonb_build_object('rota.erased', v_today),
      meta = null,
      result = null,
      progress = null,
      waits_for = null,
      last_error = case when h.last_error is not null then 'erased' end,
      cancel_reason = case when h.cancel_reason is not null then 'erased' end,
      resolution = case
        when h.resolution ? 'why' then h.resolution || '{"why": "erased"}'
        else h.resolution
      end,
      idempotency_key = {schema}.key_hash(h.idempotency_key),
      group_key = {schema}.key_hash(h.group_key)
    where h.id = any (v_ids)
      and not {schema}.is_erased(h.payload)  -- another call may have been first
    returning h.id
  )
  select array(select a.id from anew a) into v_anew;
  update {schema}.attempt a
  set
    message = case when a.message is not null then 'erased' end,
    stack = null
  where a.job = any (v_ids);
  update {schema}.action a
  set
    why = case when a.why is not null then 'erased' end,
    detail = case
      when a.detail ? 'effect'
        then a.detail
          || jsonb_build_object('effect', {schema}.key_hash(a.detail ->> 'effect'))
      else a.detail
    end
  where a.job = any (v_ids);
  return query
  select i.id
  from unnest(v_ids) i(id)
  where i.id = any (v_anew)
    or not exists (select from {schema}.job_history h where h.id = i.id);
end $$;
