-- Moves rows of a table of somebody's own queue behind p_after (a ctid): open and dead ones into
-- job, finished ones into job_history, in one transaction with their DELETE. Rows that somebody has
-- locked stay, and so does an open row whose key another job has. Returns the last place that it
-- came to (NULL: it found none), the rows that it moved, and those whose key was taken.
-- Locks: the rows that it moves; for a finished day without a partition as partition_ensure.
-- Keeps: M2, nothing is lost or doubled wherever it is killed; M51, keys go on to be held.
create or replace function {schema}.import_move(
  p_table text,
  p_spec jsonb,
  p_after text,
  p_limit int
)
returns table (last_place text, moved bigint, held bigint)
language plpgsql
as $$
declare
  v_keyed bigint[];
  v_inserted bigint;
begin
  drop table if exists pg_temp.rota_import;
  execute format(
    'create temp table rota_import on commit drop as
      select nextval(%L) as id, s.* from (
        select s.*
        from (%s where t.ctid > %L for update of t skip locked) s
        where s.refusal is null and s.target not in (''running'', ''old'')
        limit %s
      ) s',
    '{schema}.job_id_seq', {schema}.import_source(p_table::regclass, p_spec), p_after, p_limit
  );
  select i.place::text into last_place
  from pg_temp.rota_import i
  order by i.place desc
  limit 1;
  select {schema}.keys_take(
    array_agg(i.id order by i.id),
    array_agg(i.idempotency_key order by i.id),
    array_agg(k.place order by i.id)::int[],
    (select array_agg(distinct i.job_type order by i.job_type) from pg_temp.rota_import i)
  )
  into v_keyed
  from pg_temp.rota_import i
  join (
    select d.job_type, row_number() over (order by d.job_type) as place
    from (select distinct i.job_type from pg_temp.rota_import i) d
  ) k using (job_type)
  where i.idempotency_key is not null
    and i.target <> 'cancelled';
  delete from pg_temp.rota_import i
  where i.idempotency_key is not null
    and i.target not in ('succeeded', 'cancelled')
    and i.id <> all (v_keyed);
  get diagnostics held = row_count;
  execute format(
    'delete from %s t using pg_temp.rota_import i where t.ctid = i.place', p_table::regclass
  );
  get diagnostics moved = row_count;
  if moved <> (select count(*) from pg_temp.rota_import) then
    raise exception 'a trigger or a policy keeps rows of %: they would be there and here', p_table
      using errcode = 'invalid_parameter_value';
  end if;
  update {schema}.idempotency k
  set expires_at = i.ended_at + coalesce(t.key_ttl, interval '90 days')
  from pg_temp.rota_import i
  left join {schema}.job_type t on t.name = {schema}.canonical_type(i.job_type)
  where i.target = 'succeeded'
    and i.id = any (v_keyed)
    and k.job_type = {schema}.canonical_type(i.job_type)
    and k.key = i.idempotency_key;
  perform set_config('{schema}.keys_taken', 'on', true);
  insert into {schema}.job (
    id, queue, job_type, payload, status, priority, run_at, attempts, max_attempts, last_error,
    failed_at, idempotency_key, created_at
  )
  select
    i.id, i.queue, i.job_type, i.payload, i.target, i.priority,
    coalesce(i.run_at, {schema}.clock()), i.attempts, i.max_attempts, i.last_error,
    case when i.target <> 'queued' then i.ended_at end, i.idempotency_key, i.created_at
  from pg_temp.rota_import i
  where i.target not in ('succeeded', 'cancelled')
  order by i.id;
  get diagnostics v_inserted = row_count;
  perform set_config('{schema}.keys_taken', '', true);
  if v_inserted <> (
    select count(*) from pg_temp.rota_import i
    where i.target not in ('succeeded', 'cancelled')
  )
  then
    raise exception 'a trigger on {schema}.job left out jobs of %: nothing of this batch is moved',
      p_table
      using errcode = 'invalid_parameter_value';
  end if;
  perform pg_advisory_xact_lock(1919906913, hashtext('{schema}'));
  perform {schema}.partition_ensure('job_history'::text, d.day)
  from (
    select distinct (i.ended_at at time zone 'UTC')::date as day
    from pg_temp.rota_import i
    where i.target in ('succeeded', 'cancelled')
  ) d;
  insert into {schema}.job_history (
    finished_at, id, queue, job_type, payload, status, priority, run_at, attempts, max_attempts,
    claims, last_error, idempotency_key, created_at, updated_at
  )
  select
    i.ended_at, i.id, i.queue, i.job_type, i.payload, i.target, i.priority,
    coalesce(i.run_at, i.ended_at), i.attempts, i.max_attempts, 0, i.last_error,
    i.idempotency_key, i.created_at, i.ended_at
  from pg_temp.rota_import i
  where i.target in ('succeeded', 'cancelled');
  return next;
end $$;
