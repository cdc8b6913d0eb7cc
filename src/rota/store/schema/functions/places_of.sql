-- Returns the lanes of these jobs, and the caps in which they count, each as often as they do: what
-- places_free takes, read before the jobs end.
-- Locks: none; index job_pkey.
create or replace function {schema}.places_of(p_ids bigint[])
returns table (lanes text[], caps text[])
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
  select
    array_agg(distinct j.group_key) filter (where j.group_key is not null),
    array_agg(k.cap) filter (where k.cap is not null)
  from {schema}.job j
  left join lateral (
    values ('type ' || {schema}.canonical_type(j.job_type)), ('queue ' || j.queue)
  ) k(cap) on j.capped
  where j.id = any (p_ids)
$$;
