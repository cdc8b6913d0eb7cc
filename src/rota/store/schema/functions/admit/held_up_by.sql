-- Says why job_admit did not admit a job (for job_claim_one): its cap, as in waits_for; 'lane ID',
-- the job that holds a place of its lane or stands before it; otherwise its status, or `locked`:
-- another transaction holds its lane or its cap.
-- Locks: none; indexes job_pkey and job_lane.
create or replace function {schema}.held_up_by(p_id bigint)
returns text
language sql
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select coalesce(
    j.waits_for,
    'lane ' || (
      select b.id
      from {schema}.job b
      where b.group_key = j.group_key
        and b.in_lane
      limit 1
    ),
    'lane ' || (
      select h.id
      from {schema}.lane_heads(array[j.group_key]) h
      where h.id <> j.id
      limit 1
    ),
    case when j.status = 'queued' then 'locked' else j.status end
  )
  from {schema}.job j
  where j.id = p_id
$$;
