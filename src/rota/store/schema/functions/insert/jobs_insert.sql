-- Inserts up to 1,000 jobs, and returns their ids in the order of the payloads; NULL for a job that
-- was not inserted, because its key is taken or a user's trigger left it out.
--
-- p_ids: ids from ids_reserve; NULL: it reserves them itself. p_payloads: an array of objects.
-- p_keys, p_groups: the idempotency and group keys; NULL: no job has a key. p_common: an array of
-- objects, each for all jobs that share it: queue, job_type, payload_version, priority, run_at
-- (NULL: now), delay_s (seconds from now), expires_s (seconds from run_at), max_attempts, timeout,
-- group_capacity, meta and batch. p_which: each job's place in p_common, from 1; NULL: 1 for all.
--
-- It takes all keys before the rows, with one INSERT; a setting tells the trigger job_insert_fill
-- so. If a user's trigger runs at the INSERT, which may change a key or leave out a row, each row
-- takes its own key, in the order of the keys. The function has its caller's rights and no
-- search_path, so that such a trigger sees what it sees at any other INSERT. For a producer, who
-- may not give ids, jobs_insert_for calls it. Where jobs_insert_for refuses, and in a user's
-- SECURITY DEFINER function whose caller may not insert, each job is an INSERT of its own, which
-- takes its key and gets its id then, in the order of the keys, unless some jobs have a group_key:
-- the order of a lane is the order of ids.
-- Locks: with keys, the rows of `idempotency` that they become, in the order of (type, key): two
--   calls with the same keys cannot deadlock, except single INSERTs of jobs with a group_key.
-- Keeps: M20, M51, M22 as job_insert.
create or replace function {schema}.jobs_insert(
  p_ids bigint[],
  p_payloads jsonb,
  p_keys text[],
  p_groups text[],
  p_which int[],
  p_common jsonb
)
returns bigint[]
language plpgsql
as $$
declare
  v_ids bigint[];
  -- The session's role must have it too: ids_reserve and keys_take ask for it.
  v_gives_ids boolean := has_column_privilege('{schema}.job', 'id', 'INSERT')
    and has_any_column_privilege({schema}.caller(), '{schema}.job', 'INSERT');
  v_at_once boolean := p_keys is not null and not {schema}.job_has_triggers();
  v_asked jsonb;
  v_n int;
  v_new {schema}.job;
  v_id bigint;
  v_keyed bigint[];
  v_inserted bigint[];
begin
  if not v_gives_ids then
    v_ids := {schema}.jobs_insert_for(p_ids, p_payloads, p_keys, p_groups, p_which, p_common);
    if v_ids is not null then
      return v_ids;
    end if;
    for v_n, v_asked in
      select n, c.asked
      from generate_series(1, jsonb_array_length(p_payloads)) n
      cross join lateral (select p_common -> (coalesce(p_which[n], 1) - 1) as asked) c
      order by
        case
          when p_keys[n] is not null and p_groups is null
            then array[{schema}.canonical_type(c.asked ->> 'job_type'), p_keys[n]] collate "C"
        end,
        n
    loop
      v_new := jsonb_populate_record(null::{schema}.job, v_asked);
      v_new.run_at := greatest(
        {schema}.clock(),
        coalesce(
          v_new.run_at,
          {schema}.clock() + coalesce((v_asked ->> 'delay_s')::float8, 0) * interval '1 second'
        )
      );
      insert into {schema}.job (
        payload, idempotency_key, group_key,
        {common},
        run_at, expires_at
      )
      values (
        p_payloads -> (v_n - 1), p_keys[v_n], p_groups[v_n],
        {v_new.common},
        v_new.run_at, v_new.run_at + (v_asked ->> 'expires_s')::float8 * interval '1 second'
      )
      returning id into v_id;
      v_ids[v_n] := v_id;
    end loop;
    return coalesce(v_ids, '{}');
  end if;
  v_ids := coalesce(p_ids, {schema}.ids_reserve(jsonb_array_length(p_payloads)));
  if v_at_once then
    v_keyed := {schema}.keys_take(
      v_ids,
      p_keys,
      p_which,
      array(select c ->> 'job_type' from jsonb_array_elements(p_common) c)
    );
    if cardinality(v_keyed) = cardinality(array_remove(p_keys, null)) then
      v_keyed := null;  -- all are taken: nothing is looked up for each row
    end if;
    perform set_config('{schema}.keys_taken', 'on', true);
  end if;
  with common as materialized (
    select
      {u.common},
      u.expires_s,
      u.place,
      greatest(
        {schema}.clock(),
        coalesce(u.run_at, {schema}.clock() + coalesce(u.delay_s, 0) * interval '1 second')
      ) as due_at
    from (
      select
        asked.*,
        (given.value ->> 'delay_s')::float8 as delay_s,
        (given.value ->> 'expires_s')::float8 as expires_s,
        given.place
      from jsonb_array_elements(p_common) with ordinality given(value, place)
      cross join lateral jsonb_populate_record(null::{schema}.job, given.value) asked
    ) u
  ),
  inserted as (
    insert into {schema}.job (
      id, payload, idempotency_key, group_key,
      {common},
      run_at, expires_at
    )
    select
      new.id, new.payload, new.key, new.group_key,
      {c.common},
      c.due_at, c.due_at + c.expires_s * interval '1 second'
    from (
      select
        unnest(v_ids),
        jsonb_array_elements(p_payloads),
        unnest(p_keys),
        unnest(p_groups),
        unnest(p_which)
    ) new(id, payload, key, group_key, which)
    join common c on c.place = coalesce(new.which, 1)
    where new.key is null
      or v_keyed is null
      or new.id in (select unnest(v_keyed))
    order by
      case
        when new.key is not null and not v_at_once
          then array[{schema}.canonical_type(c.job_type), new.key] collate "C"
      end,
      new.id
    returning id
  )
  select array_agg(i.id) into v_inserted
  from inserted i;
  if v_at_once then
    perform set_config('{schema}.keys_taken', '', true);
  end if;
  if cardinality(v_inserted) = cardinality(v_ids) then
    return v_ids;
  end if;
  return array(
    select i.id
    from unnest(v_ids) with ordinality asked(id, place)
    left join unnest(v_inserted) i(id) on i.id = asked.id
    order by asked.place
  );
end $$;
