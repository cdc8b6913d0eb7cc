-- Ends a job that succeeded. A second call for the same claim answers the same.
create or replace function {schema}.succeed(id bigint, claims int, result jsonb default null)
returns text
language plpgsql security definer
as $$
declare
  v_job {schema}.job := {schema}.job_by_claim(succeed.id, succeed.claims, false);
  v_rooms text[] := {schema}.rooms_of(array[succeed.id]);
  v_kept jsonb := succeed.result;
begin
  if v_job.id is null then
    if exists (
      select from {schema}.job_history h
      where h.id = succeed.id
        and h.claims = succeed.claims
        and h.status = 'succeeded'
    ) then
      return 'succeeded';
    end if;
    perform {schema}.lease_lost(succeed.id, succeed.claims);
  end if;
  if octet_length(v_kept::text) > 65536 then
    raise warning 'the result of job % is over 64 KiB and is not kept', succeed.id;
    v_kept := null;
  end if;
  perform {schema}.partitions_ensure(0);
  perform {schema}.job_finish(
    array[succeed.id],
    array[succeed.claims],
    null::text[],
    array[(1e6 * extract(epoch from {schema}.clock() - v_job.started_at))::bigint],
    array[v_kept::text],
    null::text[],
    null::jsonb[],
    {schema}.release_of(v_job.locked_by)
  );
  if not found then
    perform {schema}.lease_lost(succeed.id, succeed.claims);
  end if;
  perform {schema}.trial_end(succeed.id, succeed.claims, 'serves'::text, null::text);
  perform {schema}.rooms_advance(v_rooms, 0);
  return 'succeeded';
end $$;
revoke execute on function {schema}.succeed(bigint, int, jsonb) from public;
