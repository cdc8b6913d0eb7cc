-- Erases ended jobs that ran at the time of their erasure. Returns how many. p_only NULL: all.
-- Locks: rows of `erasure`, SKIP LOCKED; indexes erasure_pkey, job_pkey. Then as jobs_erase.
-- Keeps: M45.
create or replace function {schema}.erasures_take(p_limit int, p_only bigint[] default null)
returns int
language plpgsql
set enable_bitmapscan = off set jit = off
as $$
declare
  v_ended bigint[];
begin
  perform {schema}.wait_briefly(p_only);
  v_ended := array(
    select e.job
    from {schema}.erasure e
    where (p_only is null or e.job = any (p_only))
      and not exists (select from {schema}.job j where j.id = e.job and j.status = 'running')
    order by e.job
    limit p_limit
    for update skip locked
  );
  if v_ended = '{}' then
    return 0;
  end if;
  perform {schema}.jobs_erase(v_ended, 'retention'::text);
  return cardinality(v_ended);
end $$;
