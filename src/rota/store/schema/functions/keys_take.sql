-- Takes keys for the new jobs of jobs_insert, whose parameters it has, and returns the jobs that
-- got theirs; a job without a key is not among them. SECURITY DEFINER: a producer needs INSERT on
-- job and nothing else, and that is checked here, because a key without a job would refuse the jobs
-- of others.
-- Locks: the rows of `idempotency` that the keys become, in the order of (job type, key).
-- Keeps: M51, as key_take.
create or replace function {schema}.keys_take(
  p_ids bigint[],
  p_keys text[],
  p_which int[],
  p_job_types text[]
)
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role name := coalesce(nullif(current_setting('role'), 'none'), session_user);
  v_taken bigint[];
  v_left record;
begin
  if not has_any_column_privilege(v_role, '{schema}.job', 'INSERT') then
    raise exception 'role % may not take a key: it has no INSERT on {schema}.job', v_role
      using errcode = 'insufficient_privilege';
  end if;
  -- All that are free, at once. A type with former names is left to key_take.
  with type as materialized (
    select t.which, t.given, {schema}.canonical_type(t.given) as name
    from unnest(p_job_types) with ordinality t(given, which)
  ),
  taken as (
    insert into {schema}.idempotency (job_type, key, job)
    select t.name, a.key, a.id
    from unnest(p_ids, p_keys, p_which) a(id, key, which)
    join type t on t.which = coalesce(a.which, 1)
    where a.key is not null
      and not exists (
        select from {schema}.job_type d
        where d.name = t.name
          and d.aliases <> '{}'
      )
    order by t.given collate "C", a.key collate "C", a.id
    on conflict do nothing
    returning job
  )
  select coalesce(array_agg(t.job), '{}') into v_taken
  from taken t;
  for v_left in
    select a.id, t.given as job_type, a.key
    from unnest(p_ids, p_keys, p_which) a(id, key, which)
    join unnest(p_job_types) with ordinality t(given, which) on t.which = coalesce(a.which, 1)
    where a.key is not null
      and not exists (select from unnest(v_taken) taken(id) where taken.id = a.id)
    order by t.given collate "C", a.key collate "C", a.id
  loop
    if {schema}.key_take(v_left.id, v_left.job_type, v_left.key) then
      v_taken := array_append(v_taken, v_left.id);
    end if;
  end loop;
  return v_taken;
end $$;
