-- Resumes a queue, and wakes its workers. Returns false, and writes nothing, when it is not paused.
-- p_force: also of a queue that nobody knows.
-- Locks: the row of the queue.
-- Keeps: M87.
create or replace function {schema}.queue_resume(
  p_queue text,
  p_why text default null,
  p_by text default null,
  p_force boolean default false
)
returns boolean
language plpgsql security definer
as $$
declare
  v_was_paused boolean;
begin
  perform {schema}.queue_refuse_unknown(p_queue, p_force);
  with before as (
    select q.name, {schema}.paused_since(q.paused_at, q.paused_until) is not null as was_paused
    from {schema}.queue q
    where q.name = p_queue
      and q.paused_at is not null
    for update
  )
  update {schema}.queue q
  set
    paused_at = null,
    paused_until = null,
    paused_by = null,
    paused_why = null
  from before b
  where q.name = b.name
  returning b.was_paused into v_was_paused;
  if v_was_paused is not true then  -- a pause that had run out is cleared, but was no pause
    return false;
  end if;
  perform {schema}.log_action('resume'::text, p_why, p_by, p_queue => p_queue);
  perform {schema}.wake_up(array[p_queue]);
  return true;
end $$;
revoke execute on function {schema}.queue_resume(text, text, text, boolean) from public;
