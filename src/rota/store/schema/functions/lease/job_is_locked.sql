-- Returns whether another transaction has locked this job now, without a lasting lock.
create or replace function {schema}.job_is_locked(p_id bigint)
returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  perform from {schema}.job j where j.id = p_id for update nowait;
  raise exception 'it is free' using errcode = 'RT002';  -- and what was locked here is free again
exception
  when lock_not_available then
    return true;
  when sqlstate 'RT002' then
    return false;
end $$;
