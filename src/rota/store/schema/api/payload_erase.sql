-- Erases what other rows than the jobs' own have of a payload: jobs that would follow a batch, the
-- log of schedules, and mail addresses in texts. An address is a text with an @ in the payload, or
-- in a personal argument of a job that contains the payload: call this first, then job_erase. Other
-- values, such as `Will` or 1000, stay: they may be about somebody else. `erased` replaces an
-- address, in any case, also with %40: in errors, stacks and reasons of other jobs, in actions and
-- alerts, in who paused or changed what and why, and in effects whose job has left history. A key
-- with an address becomes its hash. A longer address that contains it stays. Returns what it took
-- from live work, and what it could not erase:
--   batch      a job that was to follow this batch is not enqueued
--   schedule   this schedule gives it to its jobs
--   partition  this table is detached or archived
--   secret     this argument is stored sealed: it cannot be searched
-- Locks: the rows that it writes; live jobs in id order. It reads whole tables per 100 addresses.
-- Keeps: M45, a person's data can be erased, what is said of others stays; M51, M52, hashed keys.
create or replace function {schema}.payload_erase(p_payload jsonb)
returns table (what text, name text)
language plpgsql security definer
set jit = off
as $$
declare
  v_some text[];
  v_find text;  -- as v_any, but ten times as fast: also within another address
  v_any text;
  v_texts record;
begin
  if jsonb_typeof(p_payload) is distinct from 'object' or p_payload = '{}' then
    raise exception 'rota.payload_erase: p_payload must be an object with names'
      using errcode = 'invalid_parameter_value';
  end if;
  return query
  with without as (
    update {schema}.batch b
    set then_jobs = (
      select jsonb_object_agg(t.key, t.value)
      from jsonb_each(b.then_jobs) t
      where not coalesce(t.value -> 'payload' @> p_payload, false)
    )
    where exists (
      select from jsonb_each(b.then_jobs) t where t.value -> 'payload' @> p_payload
    )
    returning b.id, b.then_at
  )
  select 'batch', w.id::text
  from without w
  where w.then_at is null
  order by w.id;
  update {schema}.action a
  set detail = a.detail - 'payload'
  where a.detail -> 'payload' @> p_payload;
  for v_some in
    select array_agg(n.address order by n.number)
    from (
      select a.address, row_number() over (order by a.address) as number
      from (
        select one.value
        from jsonb_path_query(p_payload, 'strict $.**') one(value)
        union all
        select one.value
        from (
          select j.job_type, j.payload
          from {schema}.job j
          where j.payload @> p_payload
          union all
          select h.job_type, h.payload
          from {schema}.job_history h
          where h.payload @> p_payload
        ) mine
        join {schema}.job_type t on t.name = {schema}.canonical_type(mine.job_type)
        cross join lateral unnest(t.personal_fields) field(name)
        -- A text: an object has addresses of other people, such as a recipient.
        cross join lateral (select mine.payload -> field.name) one(value)
      ) v
      cross join lateral (
        -- Alone, or behind a name: of a longer text nobody knows whose address it has.
        select lower(substring(
          v.value #>> '{}' from '^(?:[^<>@]*<)?([^\s<>@"\\]+@[^\s<>@"\\]+)>?$'
        )) as address
      ) a
      where jsonb_typeof(v.value) = 'string'
        and a.address is not null
      group by a.address
    ) n
    group by n.number / 100  -- an expression of thousands is slow, or too long
  loop
    v_find := (
      select string_agg(
        replace(
          replace(regexp_replace(a.address, '(\W)', '\\\1', 'g'), '\@', '(?:@|%40)'),
          '\+', '(?:\+|%2B)'
        ), '|'
      )
      from unnest(v_some) a(address)
    );
    v_any := '(?:(?<![\w.+-])|(?<=\\[nrt])|(?<=%[0-9a-f]{2})|(?<=\\u[0-9a-f]{4}))(?:'
      || v_find || ')(?![\w-]|\.\w)';
    with quoting as materialized (
      select j.id
      from {schema}.job j
      where concat_ws(' ', j.last_error, j.cancel_reason) ~* v_find
        and not j.payload @> p_payload
      order by j.id
      for no key update
    )
    update {schema}.job j
    set
      last_error = regexp_replace(j.last_error, v_any, 'erased', 'gi'),
      cancel_reason = regexp_replace(j.cancel_reason, v_any, 'erased', 'gi')
    from quoting q
    where j.id = q.id;
    update {schema}.job_history h
    set
      last_error = regexp_replace(h.last_error, v_any, 'erased', 'gi'),
      cancel_reason = regexp_replace(h.cancel_reason, v_any, 'erased', 'gi'),
      resolution = regexp_replace(h.resolution::text, v_any, 'erased', 'gi')::jsonb
    where concat_ws(' ', h.last_error, h.cancel_reason, h.resolution) ~* v_find
      and not h.payload @> p_payload;
    update {schema}.action a
    set
      by = regexp_replace(a.by, v_any, 'erased', 'gi'),
      why = regexp_replace(a.why, v_any, 'erased', 'gi'),
      detail = regexp_replace(a.detail::text, v_any, 'erased', 'gi')::jsonb
    where concat_ws(' ', a.by, a.why, a.detail) ~* v_find;
    update {schema}.alert a
    set
      subject = case when a.subject ~* v_any then {schema}.key_hash(a.subject) else a.subject end,
      message = regexp_replace(a.message, v_any, 'erased', 'gi')
    where concat_ws(' ', a.subject, a.message) ~* v_find;
    for v_texts in
      select
        t.name,
        string_agg(format('%1$I = regexp_replace(%1$I, $1, ''erased'', ''gi'')', c), ', ') as anew,
        string_agg(quote_ident(c), ', ') as texts
      from (
        values
          ('attempt', '{message,stack}'::text[]),
          ('batch', '{then_error}'),
          ('breaker', '{reason,changed_by}'),
          ('installation', '{paused_by,paused_why}'),
          ('queue', '{paused_by,paused_why}'),
          ('rate_limit', '{changed_by,changed_why}'),
          ('schedule', '{paused_by,paused_why,last_error}'),
          ('worker', '{refused}')
      ) t(name, columns)
      cross join lateral unnest(t.columns) c
      group by t.name
      order by t.name
    loop
      execute format(
        'update {schema}.%I set %s where concat_ws('' '', %s) ~* $2',
        v_texts.name, v_texts.anew, v_texts.texts
      ) using v_any, v_find;
    end loop;
    perform {schema}.keys_erase('{0}'::bigint[]);
    delete from {schema}.idempotency i
    where i.key like 'erased:%'
      and i.expires_at <= {schema}.clock();
    update {schema}.idempotency i
    set key = {schema}.key_hash(i.key)
    where i.key ~* v_find
      and i.key ~* v_any
      and i.expires_at is not null;
    update {schema}.effect e
    set
      key = case when e.key ~* v_any then {schema}.key_hash(e.key) else e.key end,
      about = regexp_replace(e.about::text, v_any, 'erased', 'gi')::jsonb,
      result = regexp_replace(e.result::text, v_any, 'erased', 'gi')::json
    where concat_ws(' ', e.key, e.about, e.result) ~* v_find
      and not exists (select from {schema}.job j where j.id in (e.job, e.origin_id));
  end loop;
  return query
  select 'schedule', s.name
  from {schema}.schedule s
  where s.payload @> p_payload
  order by s.name;
  return query
  select 'partition', format('%I.%I', n.nspname, c.relname)
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where c.relkind = 'r'
    and c.relname ~ '^(job_history|attempt)_[0-9]{8}$'
    and n.nspname in ('{schema}', (select i.archive from {schema}.installation i))
    and not exists (
      select from pg_inherits h
      where h.inhrelid = c.oid
        and not h.inhdetachpending
    )
  order by c.relname;
  return query
  select 'secret', asked.name
  from jsonb_object_keys(p_payload) asked(name)
  where exists (select from {schema}.job_type t where asked.name = any (t.secret_fields))
  order by asked.name;
end $$;
revoke execute on function {schema}.payload_erase(jsonb) from public;
