-- Writes what handlers said of how far they have come: p_said is JSON with done, total and note. Returns those still held, and whether it was written: a
-- row that another transaction has locked is not waited for.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, whoever lost a job writes nothing for it.
create or replace function job_progress(p_ids bigint[], p_claims int[], p_said text[]) returns table (id bigint, written boolean)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
set search_path from current as $$
#variable_conflict use_column
begin
  return query
  with free as materialized (
    select j.id from job j
    where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true
    order by j.id for no key update skip locked),
  written as (
    update job j set progress = v.said::jsonb || jsonb_build_object('at', clock())
    from unnest(p_ids, p_claims, p_said) v(id, claims, said)
    where j.id = any (array(select f.id from free f)) and j.id = v.id and j.claims = v.claims
    returning j.id)
  select j.id, j.id in (select w.id from written w) from job j
  where j.id = any (p_ids) and ((j.id, j.claims) in (select * from unnest(p_ids, p_claims))) is true;
end $$;
