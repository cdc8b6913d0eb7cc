-- The functions for people. SECURITY DEFINER: whoever is granted one may act and needs no right on a table. Nobody is by default. Of each: p_ids at most a
-- thousand or so, for their rows stay locked until the transaction ends; p_why, one line of 500 characters; p_by, 200, left out: who logged in.
-- Each returns for every id what came of it (done, refused, not found; of a cancel also requested) and where the job stands now.
--
-- Makes jobs due now: those that wait for a later time or a retry, and those that run, whose workers lose them.
-- Locks: the rows of the jobs, in id order; index job_pkey. Of those that were called off, then
-- the rows of their keys.
-- Keeps: M87; M32, who lost the job by it writes nothing.
create or replace function job_retry_now(p_ids bigint[], p_why text default null, p_by text default null) returns table (id bigint, answer text, status text)
language sql security definer set search_path from current as $$ select * from job_take_over('retry now', p_ids, p_why, p_by) $$;
revoke execute on function job_retry_now(bigint[], text, text) from public;
