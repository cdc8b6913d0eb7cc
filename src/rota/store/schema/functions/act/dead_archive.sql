-- Archives jobs that no person has resolved and that have been dead for as long as dead jobs are
-- kept; the resolution says so. Their keys are freed. A job that halts its lane stays: its lane
-- would go on. Returns how many. p_only: only these jobs; NULL: all.
-- Locks: the rows of the jobs, with SKIP LOCKED; index job_dead. Then the rows of their keys.
-- Keeps: M44, a dead job never just disappears; M13; M60, only a person lets a halted lane go on.
create or replace function {schema}.dead_archive(p_limit int, p_only bigint[] default null)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set intervalstyle = 'postgres'
as $$
declare
  v_keep interval := (select r.keep from {schema}.retention r where r.what = 'dead');
  v_old bigint[];
begin
  perform {schema}.wait_briefly(p_only);
  v_old := array(
    select j.id
    from {schema}.job j
    where j.status = 'dead'
      and j.in_lane is not true
      and j.failed_at < {schema}.clock() - v_keep
      and (p_only is null or j.id = any (p_only))
    order by j.failed_at
    limit p_limit
    for update skip locked
  );
  return (
    select count(*)
    from {schema}.job_to_history(
      v_old,
      'dead'::text,
      array_fill(
        jsonb_build_object(
          'by', 'retention',
          'at', {schema}.clock(),
          'why', format('dead for %s', v_keep)
        ),
        array[cardinality(v_old)]
      )
    )
  );
end $$;
