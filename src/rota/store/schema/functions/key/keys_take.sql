-- Takes the keys of new jobs, and returns the jobs that have their keys now. p_which: the place in
-- p_job_types of each job's type, from 1; NULL: all have the first. SECURITY DEFINER: a producer
-- needs INSERT on job and nothing else, which is checked, because a key without a job would refuse
-- the jobs of others. No key is taken for an id that a job has or had.
--
-- Free keys become rows with one INSERT. If a key has expired, or a type has former names or keys
-- that are free at the start, key_take is asked for each key: a second pass for these keys alone
-- would lock rows in another order than a call with more keys, and the two would deadlock. Only
-- keys without a job (see key_take), which are rare, have such a pass.
-- Locks: the rows of `idempotency` that the keys become, in the order of (type, key); with
--   key_scope 'pending' the jobs that hold the other keys, as holder_keep.
-- Keeps: M51, as key_take.
create or replace function {schema}.keys_take(
  p_ids bigint[],
  p_keys text[],
  p_which int[],
  p_job_types text[]
)
returns bigint[]
language plpgsql security definer
set enable_seqscan = off
as $$
declare
  v_names text[] := array(
    with called as materialized (
      select d.given, {schema}.canonical_type(d.given) as name
      from (select distinct unnest(p_job_types)) d(given)
    )
    select c.name
    from unnest(p_job_types) with ordinality t(given, place)
    join called c on c.given = t.given
    order by t.place
  );
  v_one_by_one boolean;
  v_taken bigint[] := '{}';
  v_asked record;
begin
  perform {schema}.caller_check('job'::text, 'INSERT'::text);
  if exists (
    select from unnest(p_ids, p_keys) a(id, key)
    where a.key is not null
      and (
        a.id not between 1 and coalesce(pg_sequence_last_value('{schema}.job_id_seq'), 0)
        or length(a.key) not between 1 and 255
      )
  )
  then
    raise exception
      'rota.keys_take: an id that the sequence did not give, or a key not of 1 to 255 characters'
      using errcode = 'invalid_parameter_value';
  end if;
  if not pg_has_role({schema}.caller(), current_user, 'MEMBER')
    and (
      exists (select from {schema}.job j where j.id = any (p_ids))
      or {schema}.ids_used(p_ids) is not null
    )
  then
    raise exception 'rota.keys_take: an id is that of another job'
      using errcode = 'invalid_parameter_value';
  end if;
  v_one_by_one := exists (
      select from {schema}.job_type t
      where t.name = any (v_names)
        and (t.aliases <> '{}' or t.key_scope = 'pending')
    )
    -- One look at an index shows that mostly no key at all has expired.
    or exists (select from {schema}.idempotency i where i.expires_at <= {schema}.clock())
    and exists (
      select from {schema}.idempotency i
      where i.job_type = any (v_names)
        and i.key = any (p_keys)
        and i.expires_at <= {schema}.clock()
    );
  if not v_one_by_one then
    with taken as (
      insert into {schema}.idempotency (job_type, key, job)
      select v_names[coalesce(a.which, 1)], a.key, a.id
      from (select unnest(p_ids), unnest(p_keys), unnest(p_which)) a(id, key, which)
      where a.key is not null
      order by v_names[coalesce(a.which, 1)] collate "C", a.key collate "C", a.id
      on conflict do nothing
      returning job
    )
    select coalesce(array_agg(t.job), '{}') into v_taken
    from taken t;
    -- Only now: the INSERT may have waited for an erasure.
    if exists (select from {schema}.installation n where n.keys_erased) then
      with back as (
        delete from {schema}.idempotency i
        using unnest(p_ids, p_keys, p_which) a(id, key, which)
        where a.id = any (v_taken)
          and i.job_type = v_names[coalesce(a.which, 1)]
          and i.key = a.key
          and i.job = a.id
          and {schema}.key_is_erased(array[i.job_type], i.key)
        returning i.job
      )
      select array(select unnest(v_taken) except select b.job from back b) into v_taken;
    end if;
    if cardinality(v_taken) = cardinality(array_remove(p_keys, null)) then
      return v_taken;
    end if;
  end if;
  for v_asked in
    select distinct on (v_names[coalesce(a.which, 1)] collate "C", a.key collate "C")
      a.id, p_job_types[coalesce(a.which, 1)] as job_type, a.key
    from unnest(p_ids, p_keys, p_which) a(id, key, which)
    where a.key is not null
      and (
        v_one_by_one
        or exists (
          select from {schema}.idempotency i
          where i.job_type = v_names[coalesce(a.which, 1)]
            and i.key = a.key
            and i.job <> all (v_taken)
            and i.expires_at is null
            and not exists (select from {schema}.job j where j.id = i.job)
        )
      )
    order by v_names[coalesce(a.which, 1)] collate "C", a.key collate "C", a.id
  loop
    if {schema}.key_take(v_asked.id, v_asked.job_type, v_asked.key) then
      v_taken := array_append(v_taken, v_asked.id);
    end if;
  end loop;
  return v_taken;
end $$;
