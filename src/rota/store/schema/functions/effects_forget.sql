-- Deletes effects that were intended or done longer ago than the setting, but none whose job is
-- still live or dead: it may look for them. Returns how many.
-- Locks: the rows of the effects, with SKIP LOCKED; indexes effect_done, effect_intended and
--   job_pkey.
-- Keeps: M13, the table of effects stops growing; M52, what a job may still ask is kept.
create or replace function {schema}.effects_forget(p_limit int)
returns int
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := {schema}.clock() - (
    select r.keep
    from {schema}.retention r
    where r.what = 'effects'
  );
  v_count int;
begin
  with done as materialized (
    select e.key, e.origin_id
    from {schema}.effect e
    where e.done_at < v_before
      and not exists (select from {schema}.job j where j.id in (e.job, e.origin_id))
    order by e.done_at
    limit p_limit
    for update skip locked
  ),
  intended as materialized (
    select e.key, e.origin_id
    from {schema}.effect e
    where e.done_at is null
      and e.intended_at < v_before
      and not exists (select from {schema}.job j where j.id in (e.job, e.origin_id))
    order by e.intended_at
    limit p_limit
    for update skip locked
  )
  delete from {schema}.effect e
  using (
    select * from done
    union all
    select * from intended
  ) old
  where e.key = old.key
    and e.origin_id = old.origin_id;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
