-- Asks all workers to search the queues of these jobs again, each from the first of its jobs on.
-- Locks: the rows of the queues, in the order of their names; see look_back.
create or replace function {schema}.jobs_look_back(p_ids bigint[])
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue text;
  v_run_at timestamptz;
begin
  for v_queue, v_run_at in
    select j.queue, min(j.run_at)
    from {schema}.job j
    where j.id = any (p_ids)
    group by j.queue
    order by j.queue
  loop
    perform {schema}.look_back(v_queue, v_run_at);
  end loop;
end $$;
