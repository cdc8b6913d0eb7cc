-- Puts a running job back, uncharged: due in p_delay_s seconds; NULL: its run_at stays. With
-- p_awaits (as in job_leave) it waits for those jobs instead. A cancel request cancels it instead.
create or replace function {schema}.job_hand_back(
  p_id bigint,
  p_claims int,
  p_delay_s float8,
  p_awaits jsonb default null
)
returns table (status text, run_at timestamptz)
language plpgsql
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(p_id, p_claims);
  v_rooms text[] := {schema}.rooms_of(array[p_id]);
begin
  perform {schema}.partitions_ensure(0);
  return query
  select r.status, r.run_at
  from {schema}.job_leave(
    jsonb_build_array(jsonb_build_object(
      'id', p_id,
      'claims', p_claims,
      'status', case when p_awaits is null then 'queued' else 'waiting' end,
      'charged', false,
      'delay_s', p_delay_s,
      'ran_s', extract(epoch from {schema}.clock() - v_job.started_at),
      'waits_for', 'job ' || (p_awaits #>> '{jobs,-1}'),
      'awaits', p_awaits
    )),
    {schema}.release_of(v_job.locked_by)
  ) r;
  if not found then
    perform {schema}.lease_lost(p_id, p_claims);
  end if;
  perform {schema}.rooms_advance(v_rooms, 0);
end $$;
