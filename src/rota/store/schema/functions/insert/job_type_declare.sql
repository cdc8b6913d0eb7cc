-- Declares job types: an array of objects, all with the same columns of job_type. Columns that the
-- release does not know stay; columns that this schema does not know are left out. A field that was
-- ever personal or secret stays masked. Keys under a former name move to the new name. Where
-- key_scope becomes 'pending', the keys of jobs that have started, are dead or over are free; where
-- it becomes 'live', the keys of dead and ended jobs. A new cap (max_running) holds at once; if it
-- was raised or removed, waiting jobs compete again.
-- Locks: types, in the order of their names; keys that move or become free; then as caps_release.
-- Keeps: M15, a plain INSERT takes what the type declares; M51, with key_scope 'pending' no change
--   is joined to a job that has begun; M45, no release takes away a mask.
create or replace function {schema}.job_type_declare(p_types jsonb, p_release text)
returns int
language plpgsql
as $$
declare
  v_statement text;
  v_count int;
  v_scopes jsonb := (select jsonb_object_agg(t.name, t.key_scope) from {schema}.job_type t);
  v_capped jsonb := (
    select jsonb_object_agg(t.name, t.max_running)
    from {schema}.job_type t
    where t.max_running is not null
  );
  v_changed text[];
begin
  if p_types -> 0 is null then
    return 0;
  end if;
  select format(
    'insert into {schema}.job_type as t (%s, release) '
    'select %s, $2 '
    'from jsonb_populate_recordset(null::{schema}.job_type, $1) d '
    'order by d.name '  -- ten workers that start at once take the locks in one order
    'on conflict (name) do update '
    'set %s, release = excluded.release, declared_at = {schema}.clock()',
    string_agg(format('%I', a.attname), ', '),
    string_agg(format('d.%I', a.attname), ', '),
    string_agg(
      case a.attname
        when 'personal_fields' then
          'personal_fields = nullif(array('
            'select unnest(t.personal_fields || t.secret_fields || excluded.personal_fields) '
            'except select unnest(excluded.secret_fields) order by 1), ''{}'')'
        else format('%1$I = excluded.%1$I', a.attname)
      end,
      ', '
    )
  )
  into v_statement
  from pg_attribute a
  where a.attrelid = '{schema}.job_type'::regclass
    and p_types -> 0 ? a.attname;
  execute v_statement using p_types, p_release;
  get diagnostics v_count = row_count;
  -- Two former names may have the same key: one key moves, and the other stays until the moved key
  -- is free.
  update {schema}.idempotency i
  set job_type = moved.name
  from (
    select distinct on (t.name, k.key) t.name, k.job_type, k.key
    from {schema}.job_type t
    join {schema}.idempotency k
      on k.job_type = any (t.aliases)
      and {schema}.canonical_type(k.job_type) = t.name
    where t.aliases <> '{}'
      and not exists (
        select from {schema}.idempotency taken
        where taken.job_type = t.name
          and taken.key = k.key
      )
    order by t.name, k.key, k.expires_at desc nulls first, k.job_type
  ) moved
  where i.job_type = moved.job_type
    and i.key = moved.key;
  delete from {schema}.idempotency i
  using {schema}.job_type t
  where t.key_scope <> 'ttl'
    and t.key_scope is distinct from v_scopes ->> t.name
    and i.job_type = any (array_append(t.aliases, t.name))
    and not exists (
      select from {schema}.job j
      where j.id = i.job
        and j.status <> 'dead'
        and (t.key_scope = 'live' or j.status in ('queued', 'waiting') and j.claims = 0)
    );
  v_changed := array(
    select 'type ' || t.name
    from jsonb_to_recordset(p_types) d(name text)
    join {schema}.job_type t on t.name = d.name
    where t.max_running is distinct from (v_capped ->> t.name)::int
    order by t.name
  );
  if v_changed <> '{}' then
    perform {schema}.caps_release(v_changed);
  end if;
  return v_count;
end $$;
