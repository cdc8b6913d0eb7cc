-- Take a batch of jobs that are not over out of `running`.
-- Parameters: outcomes text (a JSON array, see the function); release text
-- Rows: id int8; status text; run_at timestamptz; reason text (of those that somebody had called off). Those whose claim was still held.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: M32; M40, a retry lies in the future; M42; M43; M87, what was called off never runs again.
select id, status, run_at, reason from rota.job_give_back(:outcomes::text::jsonb, :release::text)
