-- Writes the progress that handlers report. p_progress is JSON with done, total and note. Returns
-- the jobs still held, and whether each was written: a locked row is not, unless p_waits.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED unless p_waits; index job_pkey.
-- Keeps: M32, a worker that lost a job writes nothing for it.
create or replace function {schema}.job_progress(
  p_ids bigint[],
  p_claims int[],
  p_progress text[],
  p_waits boolean default false
)
returns table (id bigint, written boolean)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  if p_waits then
    perform
    from {schema}.job j
    where j.id = any (p_ids)
      and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id
    for no key update;
  end if;
  return query
  with held as materialized (
    select * from {schema}.claims_lock(p_ids, p_claims)
  ),
  written as (
    update {schema}.job j
    set progress = v.progress::jsonb || jsonb_build_object('at', {schema}.clock())
    from unnest(p_ids, p_claims, p_progress) v(id, claims, progress)
    where j.id = any (array(select h.id from held h where h.is_free))
      and j.id = v.id
      and j.claims = v.claims
    returning j.id
  )
  select h.id, h.id in (select w.id from written w)
  from held h;
end $$;
