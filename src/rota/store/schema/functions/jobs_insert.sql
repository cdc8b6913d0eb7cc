-- Inserts up to 1,000 jobs, and returns their ids in the order of the payloads; NULL for a job that
-- was not inserted, because its key is taken or a trigger of the user's left it out. What jobs
-- often have in common comes once for all that share it: p_which says which queue, type and so on
-- each job has (1, 2, …; NULL: all have the first). p_delays_s counts from now, p_expires_s from
-- run_at. p_ids are ids that job_reserve gave; NULL: it reserves them itself. p_keys NULL: no job
-- has a key.
--
-- It takes all keys before the rows, with one INSERT instead of one for each row; a setting tells
-- job_fill so. It has its caller's rights, and no search_path of its own: a trigger of the user's
-- finds what it finds at any other INSERT.
-- Locks: with keys, the rows of `idempotency` that they become, in the order of (job type, key):
--   two calls with the same keys cannot deadlock.
-- Keeps: M20, M51, M22 as job_insert.
create or replace function {schema}.jobs_insert(
  p_ids bigint[],
  p_payloads jsonb,
  p_keys text[],
  p_which int[],
  p_queues text[],
  p_job_types text[],
  p_payload_versions int[],
  p_priorities int[],
  p_run_ats timestamptz[],
  p_delays_s float8[],
  p_expires_s float8[],
  p_max_attempts int[],
  p_metas text[]
)
returns bigint[]
language plpgsql
as $$
declare
  v_ids bigint[] := p_ids;
  v_keyed bigint[];
  v_inserted bigint[];
begin
  if v_ids is null then
    v_ids := array(select {schema}.job_reserve(jsonb_array_length(p_payloads)));
  end if;
  if p_keys is not null then
    v_keyed := {schema}.keys_take(v_ids, p_keys, p_which, p_job_types);
  end if;
  -- Rows that a trigger of the user's inserts meanwhile are one level deeper, and take theirs.
  perform set_config('{schema}.keys_taken', (pg_trigger_depth() + 1)::text, true);
  with common as materialized (
    select
      c.*,
      c.run_at + c.expires_s * interval '1 second' as expires_at
    from (
      select
        u.*,
        greatest(
          {schema}.clock(),
          coalesce(
            u.asked_run_at,
            {schema}.clock() + coalesce(u.delay_s, 0) * interval '1 second'
          )
        ) as run_at
      from unnest(
        p_queues, p_job_types, p_payload_versions, p_priorities,
        p_run_ats, p_delays_s, p_expires_s, p_max_attempts, p_metas::jsonb[]
      ) with ordinality u(
        queue, job_type, payload_version, priority,
        asked_run_at, delay_s, expires_s, max_attempts, meta,
        which
      )
    ) c
  ),
  inserted as (
    insert into {schema}.job (
      id,
      queue, job_type, payload, payload_version, priority,
      run_at, expires_at, max_attempts,
      idempotency_key, meta
    )
    select
      given.id,
      c.queue, c.job_type, given.payload, c.payload_version, c.priority,
      c.run_at, c.expires_at, c.max_attempts,
      given.key, c.meta
    from rows from (
      unnest(v_ids),
      jsonb_array_elements(p_payloads),
      unnest(p_keys),
      unnest(p_which)
    ) given(id, payload, key, which)
    join common c on c.which = coalesce(given.which, 1)
    where given.key is null
      or given.id in (select unnest(v_keyed))
    returning id
  )
  select array_agg(i.id) into v_inserted
  from inserted i;
  perform set_config('{schema}.keys_taken', '', true);
  if cardinality(v_inserted) = cardinality(v_ids) then
    return v_ids;
  end if;
  return array(
    select i.id
    from unnest(v_ids) with ordinality given(id, place)
    left join unnest(v_inserted) i(id) on i.id = given.id
    order by given.place
  );
end $$;
