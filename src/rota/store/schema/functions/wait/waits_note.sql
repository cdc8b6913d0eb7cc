-- Writes into the meta of jobs that begin to wait (for job_leave) for which jobs they do, beside
-- their earlier waits: so a claim returns it, and no column is needed.
-- Locks: none but the caller's; index job_pkey.
create or replace function {schema}.waits_note(p_ids bigint[], p_awaits jsonb[])
returns void
language sql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  update {schema}.job j
  set meta = coalesce(j.meta, '{}') || jsonb_build_object(
    'rota.waits',
    jsonb_build_object(
      'jobs', a.awaits -> 'jobs',
      'before', to_jsonb(array(
        select distinct told.id
        from unnest(
          {schema}.wait_ids(j.meta, 'before'::text) || {schema}.wait_ids(j.meta, 'jobs'::text)
        ) told(id)
        order by told.id
      )),
      'on_failure', a.awaits -> 'on_failure'
    )
  )
  from unnest(p_ids, p_awaits) a(id, awaits)
  where j.id = a.id
$$;
