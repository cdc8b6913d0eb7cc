-- Why: every table that grows must stop growing, without stopping anybody: an old day of history is a table that is detached and dropped, and what has
-- to go row by row goes in small batches that wait for nobody. Oldest release that can live with this: 0.1.0.

-- How long is kept what is over; a what without a row is kept for ever. `rota migrate --keep-history 30d` changes a row, and so does plain SQL.
create table rota.retention (
  what text primary key check (what in ('history', 'attempts', 'dead', 'actions')),
  keep interval not null check (keep >= interval '1 day')
);
insert into rota.retention (what, keep) values ('history', '14 days'), ('attempts', '90 days'), ('dead', '90 days'), ('actions', '90 days');

-- What retention reads, so that its passes never read whole tables. A job without a key, and one that does not die, is in none of them.
create index job_dead on rota.job (failed_at) where status = 'dead';
create index idempotency_expires on rota.idempotency (expires_at) where expires_at is not null;
-- What every finish asks; empty where no type keeps failures only.
create index job_type_unkept on rota.job_type (name) where history = 'failures';

-- What is to be done about partitions now, as commands, for DETACH … CONCURRENTLY runs in no function: of each table at most one partition to take off,
-- the one first whose taking off was cut short; and the tables that are off and older than what is kept. Partitions are known by their names.
create function rota.partitions_due() returns table (step text, name text, command text) language sql stable set search_path = rota, pg_temp as $$
  with parent as materialized (
    -- The last day that is over for so long: a day is dropped whole, when its last moment is that old.
    select p.oid, p.relname, p.relnamespace, to_char((rota.clock() - r.keep) at time zone 'UTC' - interval '1 day', 'YYYYMMDD') as last_day
    from rota.retention r
    join pg_class p on p.oid = case r.what when 'history' then 'rota.job_history'::regclass when 'attempts' then 'rota.attempt'::regclass end),
  partition as (
    select p.oid as parent, p.relname as parent_name, c.relname as name, i.inhrelid is not null as is_on, coalesce(i.inhdetachpending, false) as is_pending,
      right(c.relname::text, 8) <= p.last_day collate "C" as is_old
    from parent p
    join pg_class c on c.relnamespace = p.relnamespace and c.relkind = 'r' and c.relname ~ '_[0-9]{8}$' and left(c.relname::text, -9) = p.relname::text
    left join pg_inherits i on i.inhrelid = c.oid),
  off as (
    select distinct on (p.parent) p.parent_name, p.name, p.is_pending
    from partition p where p.is_on and (p.is_pending or p.is_old) order by p.parent, p.is_pending desc, p.name)
  select 'detach', o.name::text, format('alter table %I.%I detach partition %I.%I %s', current_schema(), o.parent_name, current_schema(), o.name,
    case when o.is_pending then 'finalize' else 'concurrently' end)
  from off o
  union all
  (select 'drop', p.name::text, format('drop table if exists %I.%I', current_schema(), p.name) from partition p where p.is_old and not p.is_on order by p.name)
$$;

-- Puts jobs away that have been dead for as long as dead ones are kept, and nobody looked: they move to history with a resolution that says so, and
-- their keys are free, as when a person ignores one. Returns how many. p_only: of these jobs only; NULL: of all.
create function rota.dead_put_away(p_limit int, p_only bigint[] default null) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set intervalstyle = 'postgres' set search_path = rota, pg_temp as $$
declare v_keep interval := (select r.keep from rota.retention r where r.what = 'dead'); v_count int; begin
  perform rota.wait_briefly(p_only);
  with old as materialized (
    select j.* from rota.job j
    where j.status = 'dead' and j.failed_at < rota.clock() - v_keep
      and (p_only is null or j.id = any (p_only))
    order by j.failed_at limit p_limit for update skip locked),
  gone as (
    delete from rota.job j using old o where j.id = o.id),
  key_freed as (
    delete from rota.idempotency i using old o
    where o.idempotency_key is not null
      and i.job_type in (o.job_type, rota.canonical_type(o.job_type)) and i.key = o.idempotency_key and i.job = o.id)
  insert into rota.job_history (id, origin_id, queue, job_type, payload, payload_version, status, priority, run_at, expires_at, attempts, max_attempts,
    claims, locked_by, losses, cancel_requested_at, cancel_reason, progress, misfits, last_error, error_type, response_code, verdict, verdict_rule,
    idempotency_key, meta, schedule, scheduled_for, created_at, updated_at, started_at, failed_at, finished_at, resolution)
  select o.id, o.origin_id, o.queue, o.job_type, o.payload, o.payload_version, o.status, o.priority, o.run_at, o.expires_at, o.attempts, o.max_attempts,
    o.claims, o.locked_by, o.losses, o.cancel_requested_at, o.cancel_reason, o.progress, o.misfits, o.last_error, o.error_type, o.response_code, o.verdict,
    o.verdict_rule, o.idempotency_key, o.meta, o.schedule, o.scheduled_for, o.created_at, o.updated_at, o.started_at, o.failed_at, rota.clock(),
    jsonb_build_object('by', 'retention', 'at', rota.clock(), 'why', format('dead for %s', v_keep))
  from old o;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Forgets keys whose time is over. Returns how many.
create function rota.keys_expire(p_limit int) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = rota, pg_temp as $$
declare v_count int; begin
  with old as materialized (
    select i.job_type, i.key from rota.idempotency i
    where i.expires_at < rota.clock() order by i.expires_at limit p_limit for update skip locked)
  delete from rota.idempotency i using old o where i.job_type = o.job_type and i.key = o.key;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Forgets workers that have been gone for a day: whether some release can read a payload is asked for an hour. Returns how many.
create function rota.workers_forget(p_limit int) returns int language plpgsql set search_path = rota, pg_temp as $$
declare v_count int; begin
  with gone as materialized (
    select w.name from rota.worker w
    where coalesce(w.stopped_at, w.heartbeat_at) < rota.clock() - interval '1 day' limit p_limit for update skip locked)
  delete from rota.worker w using gone g where w.name = g.name;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Forgets what people did, when that is as old as the setting. Returns how many.
create function rota.actions_forget(p_limit int) returns int language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = rota, pg_temp as $$
declare v_count int; begin
  with old as materialized (
    select a.id from rota.action a
    where a.at < rota.clock() - (select r.keep from rota.retention r where r.what = 'actions') order by a.at limit p_limit for update skip locked)
  delete from rota.action a using old o where a.id = o.id;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
