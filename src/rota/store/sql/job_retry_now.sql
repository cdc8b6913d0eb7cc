-- Make jobs due now, and take those that run from their workers.
-- Parameters: ids int8[]; why text; by text
-- Rows: id int8; answer text (done, cancelled, refused, not found); status text
-- Locks: the rows of the jobs, in id order; index job_pkey. Of those that were called off, then the rows of their keys.
-- Keeps: M87; M32, who lost the job by it writes nothing.
select id, answer, status from rota.job_retry_now(:ids::int8[], :why::text, :by::text)
