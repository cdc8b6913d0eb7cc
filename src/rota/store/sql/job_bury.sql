-- Give jobs up: they are dead.
-- Parameters: ids int8[]; why text; by text
-- Rows: id int8; answer text (done, refused, not found); status text
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M87; M32, who lost the job by it writes nothing.
select id, answer, status from rota.job_bury(:ids::int8[], :why::text, :by::text)
