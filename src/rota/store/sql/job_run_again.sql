-- Run jobs again that are over or dead: copies, with origins of their own and without keys.
-- Parameters: ids int8[]; why text; by text
-- Rows: id int8; answer text (done, refused, not found); status text; new_id int8
-- Locks: none; indexes job_pkey and job_history_id.
-- Keeps: M87.
select id, answer, status, new_id from rota.job_run_again(:ids::int8[], :why::text, :by::text)
