-- Record that jobs are about to begin.
-- Parameters: ids int8[]; claims int4[]
-- Rows: id int8. Those still held; a missing one is lost.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M33, what was lost before its start was recorded is not charged, and what may begin once only does not begin twice.
select id from rota.job_start(:ids::int8[], :claims::int4[]) id
