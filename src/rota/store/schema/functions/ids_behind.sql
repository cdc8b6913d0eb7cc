-- Returns the sequences that are behind the ids that they have given: after a move by logical
-- replication, or a restore without sequences, they begin again. An attempt counts too: it may be
-- all that is left of a job. SECURITY DEFINER: a reader needs no right on the sequences.
-- Locks: none; indexes job_pkey, job_history_id, attempt_job and action_pkey.
create or replace function {schema}.ids_behind()
returns table (sequence text, last_id bigint, highest_id bigint)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select
    given.sequence,
    coalesce(pg_sequence_last_value(given.sequence::regclass), 0),
    given.highest
  from (
    values
      (
        pg_get_serial_sequence('{schema}.job', 'id'),
        greatest(
          (select max(j.id) from {schema}.job j),
          (select max(h.id) from {schema}.job_history h),
          (select max(a.job) from {schema}.attempt a)
        )
      ),
      (pg_get_serial_sequence('{schema}.action', 'id'), (select max(a.id) from {schema}.action a))
  ) given(sequence, highest)
  where given.highest > coalesce(pg_sequence_last_value(given.sequence::regclass), 0)
$$;
