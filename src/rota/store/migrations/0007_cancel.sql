-- Why: people call jobs off, and handlers say how far they have come. Both write to jobs that workers hold, so both keep to the workers' rules: rows in
-- id order through the primary key, and the fence. Oldest release that can live with this: 0.1.0.

-- Ends jobs that were called off and that no worker holds: they go to history as cancelled and free their keys. Of dead ones nobody asks that.
-- Whoever wrote the request or took the job out of `running` calls it in the same transaction, so nobody else meets such a row. Returns those that are over.
create function rota.job_call_off(p_ids bigint[]) returns setof bigint
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan set search_path = rota, pg_temp as $$
begin
  return query
  with over as (
    delete from rota.job j
    where j.id = any (p_ids) and j.cancel_requested_at is not null and j.status <> 'running'
    returning j.*),
  key_freed as (
    delete from rota.idempotency i using over o
    where o.idempotency_key is not null and i.job_type in (o.job_type, rota.canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id)
  insert into rota.job_history
  select ended.*
  from over o
  cross join lateral jsonb_populate_record(null::rota.job_history,
    to_jsonb(o) || jsonb_build_object('status', 'cancelled', 'updated_at', rota.clock(), 'finished_at', rota.clock())
    -- The reason takes the place of what the last attempt failed of; that is in `attempt`.
    || case when o.cancel_reason is null then '{}'
       else jsonb_build_object('last_error', o.cancel_reason, 'error_type', null, 'response_code', null, 'verdict', null, 'verdict_rule', null) end) ended
  returning job_history.id;
end $$;

-- Calls jobs off. What waits is over at once; of what runs, the request is kept and its worker woken, and when the attempt ends without success the job
-- is cancelled in the same transaction. p_why is cut to 500 characters on one line, p_by to 200; the first
-- reason stays. Returns for each id what came of it (cancelled,
-- requested, refused, not found) and where the job stands now.
-- SECURITY DEFINER: whoever is granted this may call jobs off and needs no right on a table. Nobody is by default.
create function rota.job_cancel(p_ids bigint[], p_why text default null, p_by text default null) returns table (id bigint, answer text, status text)
language plpgsql security definer set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = rota, pg_temp as $$
#variable_conflict use_column
declare v_why text := rota.one_line(p_why, 500); v_waiting bigint[]; v_workers text[]; v_over bigint[]; begin
  perform rota.today_ensure();
  with asked as (
    update rota.job j set cancel_requested_at = rota.clock(), cancel_reason = v_why
    where j.id = any (p_ids) and j.cancel_requested_at is null and j.status <> 'dead'
    returning j.id, j.locked_by, j.status as was),
  logged as (
    insert into rota.action (verb, job, by, why, detail)
    select 'cancel', a.id, coalesce(rota.one_line(p_by, 200), session_user), v_why,
      jsonb_strip_nulls(jsonb_build_object('was', a.was, 'worker', a.locked_by))
    from asked a order by a.id)
  select array_agg(a.id) filter (where a.locked_by is null), array_agg(distinct a.locked_by) filter (where a.locked_by is not null)
  into v_waiting, v_workers from asked a;
  v_over := array(select rota.job_call_off(v_waiting));
  perform pg_notify('rota.workers', worker) from unnest(v_workers) worker;
  return query
  select given.id,
    case when given.id = any (v_over) then 'cancelled' when stands.status = 'running' then 'requested' when stands.status is null then 'not found'
      else 'refused' end,
    stands.status
  from (select distinct i.id from unnest(p_ids) i(id)) given
  cross join lateral (
    select coalesce((select j.status from rota.job j where j.id = given.id), (select h.status from rota.job_history h where h.id = given.id limit 1))
  ) stands(status)
  order by given.id;
end $$;
revoke execute on function rota.job_cancel(bigint[], text, text) from public;

-- Writes what handlers said of how far they have come: p_said is JSON with done, total and note. Returns those still held, and whether it was written: a
-- row that another transaction has locked is not waited for.
create function rota.job_progress(p_ids bigint[], p_claims int[], p_said text[]) returns table (id bigint, written boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from rota.job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update skip locked),
  written as (
    update rota.job j set progress = v.said::jsonb || jsonb_build_object('at', rota.clock())
    from unnest(p_ids, p_claims, p_said) v(id, claims, said)
    where j.id = any (array(select f.id from free f)) and j.id = v.id and j.claims = v.claims
    returning j.id)
  select j.id, j.id in (select w.id from written w) from rota.job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;
