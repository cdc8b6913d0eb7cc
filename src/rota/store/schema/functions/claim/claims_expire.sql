-- Ends these claimed jobs if their expires_at has passed, uncharged, as job_expire does, and
-- returns the rest (for a claim in SQL; a worker in Python does it before a job begins).
-- Locks: the rows of the jobs, which the claim has locked.
-- Keeps: M36, past its expiry a job is not started.
create or replace function {schema}.claims_expire(p_ids bigint[], p_release text)
returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_late jsonb;
  v_dropped bigint[];
  v_claims int[];
  v_reasons text[];
  v_ids bigint[];
  v_rooms text[];
begin
  select
    jsonb_agg(
      jsonb_build_object(
        'id', j.id,
        'claims', j.claims,
        'status', 'dead',
        'charged', false,
        'error_type', 'Expired',
        'verdict', 'fatal',
        'verdict_rule', 'expired',
        'message', said.message
      )
    ) filter (where late.is_late and not late.drops),
    array_agg(j.id) filter (where late.is_late and late.drops),
    array_agg(j.claims) filter (where late.is_late and late.drops),
    array_agg('expired: ' || said.message) filter (where late.is_late and late.drops),
    array_agg(j.id) filter (where not late.is_late)
  into v_late, v_dropped, v_claims, v_reasons, v_ids
  from {schema}.job j
  left join {schema}.job_type t on t.name = {schema}.canonical_type(j.job_type)
  cross join lateral (
    select
      coalesce(j.expires_at <= {schema}.clock(), false) as is_late,
      coalesce(t.on_expired = 'drop', false) as drops
  ) late
  cross join lateral (
    select {schema}.expiry_message(j, 'it was claimed too late'::text) as message
  ) said
  where j.id = any (p_ids);
  if v_late is not null or v_dropped is not null then
    v_rooms := {schema}.rooms_of(array(select unnest(p_ids) except select unnest(v_ids)));
  end if;
  if v_late is not null then
    perform {schema}.partitions_ensure(0);
    perform {schema}.job_leave(v_late, p_release);
  end if;
  if v_dropped is not null then
    perform {schema}.partitions_ensure(0);
    perform {schema}.job_finish(
      v_dropped, v_claims, array_fill('cancelled'::text, array[cardinality(v_dropped)]),
      null::bigint[], null::text[],
      v_reasons, null::jsonb[], p_release
    );
  end if;
  perform {schema}.rooms_advance(v_rooms, 0);
  return coalesce(v_ids, '{}');
end $$;
