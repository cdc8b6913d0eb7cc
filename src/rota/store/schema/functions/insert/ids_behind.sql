-- Returns the sequences that are behind the ids that they have given, as after a move by logical
-- replication or a restore without sequences. Everything that names a job counts: an attempt, a
-- key, a run of a schedule or an action may be all that is left of it. Of keys of ended jobs, and
-- of runs, the latest p_limit are read; NULL: all. Ids above half of a sequence's range do not
-- count: no sequence gave them. SECURITY DEFINER: a reader needs no right on the sequences.
-- Locks: none; indexes job_pkey, job_history_id, attempt_job, action_pkey, action_job,
--   idempotency_live, idempotency_expires and schedule_run_enqueued. Without p_limit it reads
--   idempotency and schedule_run whole.
create or replace function {schema}.ids_behind(p_limit int)
returns table (sequence text, last_id bigint, highest_id bigint)
language sql security definer
set enable_sort = off
as $$
  select
    given.sequence,
    coalesce(pg_sequence_last_value(given.sequence::regclass), 0),
    given.highest
  from (
    select pg_get_serial_sequence('{schema}.job', 'id'), max(known.id)
    from (
      select max(j.id) from {schema}.job j
      union all
      select max(h.id) from {schema}.job_history h
      union all
      select max(a.job) from {schema}.attempt a
      union all
      select max(a.job) from {schema}.action a where a.job is not null
      union all
      select max(s.last_job) from {schema}.schedule s
      union all
      select max(i.job) from {schema}.idempotency i where i.expires_at is null
      union all
      select max(l.job)
      from (
        select i.job
        from {schema}.idempotency i
        where i.expires_at is not null
        order by i.expires_at desc
        limit p_limit
      ) l
      union all
      select max(l.job)
      from (
        select r.job
        from {schema}.schedule_run r
        order by r.enqueued_at desc
        limit p_limit
      ) l
    ) known(id)
    where known.id < 9223372036854775807 / 2
    union all
    select pg_get_serial_sequence('{schema}.action', 'id'), max(a.id)
    from {schema}.action a
    where a.id < 9223372036854775807 / 2
  ) given(sequence, highest)
  where given.highest > coalesce(pg_sequence_last_value(given.sequence::regclass), 0)
$$;
