-- Prepare a job's end in its handler's transaction: make today's partitions, end its trial.
-- Parameters: id int8; claims int4
-- Rows: partitions_ensure int4; trial_end text
-- Locks: as trial_end.
-- Keeps: M63, success of a trial closes its breaker.
select
  :schema.partitions_ensure(0) as partitions_ensure,
  :schema.trial_end(:id::int8, :claims::int4, 'serves'::text, null::text)::text as trial_end
