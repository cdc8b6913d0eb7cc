-- Finish jobs that have succeeded without a result, and take the next jobs of their lanes.
-- Parameters: ids int8[]; claims int4[]; ran_us int8[] (each one per job that ends);
--   release text; worker text; types text[]; leases interval[]; records bool[] (each one per type);
--   room int[]; lo int[]; hi int[] (of each group of slots);
--   queues text[]; priorities int2[]; after_run_at timestamptz[]; after_id int8[] (per branch)
-- Rows: {claimed}; started timestamptz; finished int8[] (the ids of the ended jobs). A row for each
--   job that was taken; a row without an id: no job was taken.
-- Locks: as job_finish_passing.
-- Keeps: M31, a claim is a lease; M60, the next job of a lane is due at once.
select
  {claimed},
  done.started,
  done.finished
from :schema.job_finish_passing(
  :ids::int8[], :claims::int4[], :ran_us::int8[],
  :release::text, :worker::text,
  :types::text[], :leases::interval[], :records::bool[],
  :room::int[], :lo::int[], :hi::int[],
  :queues::text[], :priorities::int2[], :after_run_at::timestamptz[], :after_id::int8[]
) done
left join lateral unnest(done.taken) on true
