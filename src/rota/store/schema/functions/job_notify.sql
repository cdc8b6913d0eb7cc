-- Refuses rows that no producer may insert, and wakes workers. A commit that carries a NOTIFY holds
-- a database-wide lock until it is flushed. So only due rows wake a worker, and only a worker that
-- waits for their queue. The channel has the schema's name; its payload is the queue.
-- Keeps: no INSERT makes a row that stops other producers, readers or a schedule.
create or replace function {schema}.job_notify()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_last_id bigint := coalesce(pg_sequence_last_value('{schema}.job_id_seq'), 0);
  v_instant constant text := '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$';
  v_broken text;
begin
  select b.bound into v_broken
  from fresh f
  cross join lateral (
    select case
      -- Ids are reserved before they are given. Above the sequence one blocks a later producer.
      when f.id > v_last_id then 'job_id_is_reserved'
      when least(
          f.updated_at, f.started_at, f.failed_at, f.cancel_requested_at, f.locked_until
        ) < '1970-01-01 00:00:00+00'
        or greatest(
          f.updated_at, f.started_at, f.failed_at, f.cancel_requested_at, f.locked_until
        ) >= '9000-01-01 00:00:00+00'
        then 'job_times_are_readable'
      when f.progress is not null
        and (
          jsonb_typeof(f.progress -> 'done') is distinct from 'number'
          or coalesce(jsonb_typeof(f.progress -> 'total'), '') not in ('number', 'null')
          or coalesce(jsonb_typeof(f.progress -> 'note'), '') not in ('string', 'null')
          or ((f.progress ->> 'at') ~ v_instant) is not true
          or (f.progress ->> 'at')::timestamptz < '1970-01-01 00:00:00+00'
        )
        then 'job_progress_is_readable'
      when octet_length(concat(
          f.last_error, f.error_type, f.verdict, f.verdict_rule, f.cancel_reason, f.locked_by,
          f.schedule, f.mismatched_releases, f.progress
        )) > {schema}.payload_bytes_max()
        then 'job_texts_are_small'
      -- A run that is live and never starts would make every tick of its schedule a skipped one.
      when f.schedule is not null
        and (f.status <> 'queued' or f.run_at > {schema}.clock() + interval '2 days')
        then 'job_run_is_due'
    end as bound
  ) b
  where b.bound is not null
  limit 1;
  if found then
    raise exception 'new row for relation "job" violates check constraint "%"', v_broken
      using
        errcode = '23514', constraint = v_broken, schema = '{schema}', table = 'job',
        hint = 'A producer inserts the columns that docs/sql-contract.md lists, under no id or '
          || 'one of rota.job_reserve.';
  end if;
  if exists (select from {schema}.queue q where q.notify_until > {schema}.clock()) then
    perform {schema}.wake_up(array(
      select distinct f.queue
      from fresh f
      where f.status = 'queued'
        and f.run_at <= {schema}.clock()
    ));
  end if;
  return null;
end $$;
