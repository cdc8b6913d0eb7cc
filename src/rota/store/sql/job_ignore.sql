-- Put dead jobs away with a reason.
-- Parameters: ids int8[]; why text; by text
-- Rows: id int8; answer text (done, refused, not found); status text
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M44; M51, an ignored job frees its key.
select id, answer, status from rota.job_ignore(:ids::int8[], :why::text, :by::text)
