-- Returns how a job ended: succeeded, cancelled, dead, or archived (dead, then archived by a person
-- or retention); NULL: it has not ended; gone: there is no row, because its type keeps failures
-- only or retention deleted it. For a requeued job it answers about the last of its chain (job).
-- Locks: none; indexes job_pkey and job_history_id.
create or replace function {schema}.job_end(p_id bigint)
returns table (job bigint, outcome text, result jsonb, error_type text, message text)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_next bigint;
begin
  job := p_id;
  for hop in 1 .. 1000 loop
    select case when j.status = 'dead' then 'dead' end, j.error_type, j.last_error
    into outcome, error_type, message
    from {schema}.job j
    where j.id = job;
    exit when found;
    select
      case when h.status = 'dead' then 'archived' else h.status end,
      h.result, h.error_type, h.last_error,
      (h.resolution ->> 'requeued_as')::bigint
    into outcome, result, error_type, message, v_next
    from {schema}.job_history h
    where h.id = job
    limit 1;
    if not found then
      outcome := 'gone';
      exit;
    end if;
    exit when v_next is null;
    job := v_next;
  end loop;
  return next;
end $$;
