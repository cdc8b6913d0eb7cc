-- Write how far handlers have come.
-- Parameters: ids int8[]; claims int4[]; said text[] (JSON: done, total, note)
-- Rows: id int8; written bool (false: its row was locked). Those still held; a missing one is lost.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, whoever lost a job writes nothing for it.
select id, written from rota.job_progress(:ids::int8[], :claims::int4[], :said::text[])
