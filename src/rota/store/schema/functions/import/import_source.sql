-- Returns the query that reads a table of somebody's own queue as jobs. p_spec: columns, ours with
-- the names of theirs; statuses, theirs (in small letters) with what each means; queue, if all go
-- to one; lease_s, for a table that has only locked_at. Rows of the query: place (ctid), columns of
-- job, ended_at, target and refusal (why the row stays; NULL: it moves). target: a status of job or
-- of job_history; running: its worker still has it; old: history keeps no such day. Refuses a table
-- whose ctid names no single row, or whose DELETE reaches other tables.
create or replace function {schema}.import_source(p_table regclass, p_spec jsonb)
returns text
language plpgsql stable
as $$
declare
  v_columns text;
  -- The names of types that may refuse a job for its key, group, limit or secrets.
  v_ruled text[] := array(
    select unnest(t.name || t.aliases)
    from {schema}.job_type t
    where num_nonnulls(t.key_arguments, t.group_arguments, t.asks, t.secret_fields) > 0
  );
begin
  if exists (
    select from pg_class c
    where c.oid = p_table
      and (c.relkind <> 'r' or c.relhassubclass)
  )
  or exists (select from pg_constraint f where f.confrelid = p_table)
  then
    raise exception
      '% is partitioned, no table, or foreign keys refer to it: a row could not go alone. Copy the '
      'rows into a plain table, and move that', p_table
      using errcode = 'invalid_parameter_value';
  end if;
  select string_agg(
    format(
      '%s as %I',
      case
        when a.attname is null then 'null::' || c.kind
        when a.atttypid = 'timestamp'::regtype then format('t.%I at time zone ''UTC''', a.attname)
        else format('t.%I::%s', a.attname, c.kind)
      end,
      c.name
    ),
    ', '
  )
  into v_columns
  from (
    values
      ('job_type', 'text'), ('payload', 'jsonb'), ('status', 'text'), ('queue', 'text'),
      ('priority', 'int'), ('run_at', 'timestamptz'), ('attempts', 'int'), ('max_attempts', 'int'),
      ('idempotency_key', 'text'), ('last_error', 'text'), ('locked_at', 'timestamptz'),
      ('locked_until', 'timestamptz'), ('created_at', 'timestamptz'),
      ('updated_at', 'timestamptz'), ('finished_at', 'timestamptz')
  ) c(name, kind)
  left join pg_attribute a
    on a.attrelid = p_table
    and a.attname = p_spec -> 'columns' ->> c.name
    and a.attnum > 0
    and not a.attisdropped;
  return format(
    $query$
      select
        t.ctid as place, s.job_type, coalesce(s.payload, '{}') as payload,
        coalesce(%3$L, s.queue, 'default') as queue, coalesce(s.priority, 0) as priority,
        s.run_at, coalesce(s.attempts, 0) as attempts, s.max_attempts,
        nullif(s.idempotency_key, '') as idempotency_key, s.last_error,
        coalesce(s.created_at, s.run_at, m.ended_at) as created_at, m.ended_at,
        case
          when m.target in ('succeeded', 'cancelled')
            and m.ended_at < (
              select {schema}.clock() - r.keep + interval '1 day'
              from {schema}.retention r
              where r.what = 'history'
            )
            then 'old'
          else m.target
        end as target,
        case
          when m.target is null
            then format(
              'status %%1$s is not known: say what it means, as in --status %%1$s=queued',
              coalesce(s.status, 'NULL')
            )
          when s.job_type is null then 'the type of the job is NULL'
          when m.target not in ('succeeded', 'cancelled')
            -- A plain row asks nothing: a call takes ten times as long as the move of the row.
            and (
              s.job_type = any (%6$L::text[])
              or (
                length(s.job_type) between 1 and 100
                and s.payload @> '{}'
                and octet_length(s.payload::text) <= {schema}.payload_bytes_max()
                and length(s.queue) <= 100
                and s.priority between -100 and 100
                and s.max_attempts between 1 and 10000
                and length(s.idempotency_key) <= 255
                and s.run_at between '1970-01-02' and '8999-01-01'
              ) is false
            )
            then {schema}.import_refusal(
              s.job_type, coalesce(s.payload, '{}'), coalesce(%3$L, s.queue, 'default'),
              s.priority, s.max_attempts, nullif(s.idempotency_key, ''), s.run_at
            )
        end as refusal
      from %1$s t
      cross join lateral (select %2$s) s
      cross join lateral (
        select %4$L::jsonb ->> coalesce(lower(s.status), 'queued') as meaning
      ) n
      cross join lateral (
        select
          case
            when n.meaning = 'running' and coalesce(
                s.locked_until, s.locked_at + %5$s * interval '1 second'
              ) > {schema}.clock()
              then 'running'
            when n.meaning = 'running' then 'queued'
            when n.meaning = 'failed' and s.attempts < s.max_attempts then 'failed'
            when n.meaning = 'failed' then 'dead'
            else n.meaning
          end as target,
          least(
            {schema}.clock(),
            coalesce(s.finished_at, s.updated_at, s.run_at, s.created_at, {schema}.clock())
          ) as ended_at
      ) m
    $query$,
    p_table, v_columns, p_spec ->> 'queue', p_spec -> 'statuses', p_spec ->> 'lease_s', v_ruled
  );
end $$;
