-- Locks the queued jobs that hold these keys, before the first of them is changed.
-- Locks: the rows of the jobs, in id order; index job_pkey.
-- Keeps: two bulks that replace the same jobs cannot deadlock.
create or replace function {schema}.holders_lock(p_job_types text[], p_keys text[])
returns void
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_ids bigint[];
begin
  perform {schema}.caller_check('job'::text, 'INSERT'::text);
  select array_agg(h.id) into v_ids
  from {schema}.keys_held(p_job_types, p_keys) h
  where h.status = 'queued';
  perform from {schema}.job j
  where j.id = any (v_ids)
  order by j.id
  for no key update;
end $$;
