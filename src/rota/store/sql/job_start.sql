-- Record that jobs are about to begin.
-- Parameters: ids int8[]; claims int4[]
-- Rows: id int8; recorded bool (false: somebody has the row locked). Those still held; a missing one is lost.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M33, what was lost before its start was recorded is not charged, and what may begin once only does not begin twice.
select id, recorded from rota.job_start(:ids::int8[], :claims::int4[])
