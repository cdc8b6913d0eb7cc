-- Call jobs off: those that wait are over at once, of those that run their workers are told.
-- Parameters: ids int8[]; why text; by text
-- Rows: id int8; answer text (cancelled, requested, refused, not found); status text
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M87; M51, a cancelled job frees its key.
select id, answer, status from rota.job_cancel(:ids::int8[], :why::text, :by::text)
