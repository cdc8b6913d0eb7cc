-- Ends a pause of everything. Queues that were paused by name stay paused. Returns false if there
-- is none.
-- Locks: the row of `installation`.
-- Keeps: M87.
create or replace function {schema}.resume_all(p_why text default null, p_by text default null)
returns boolean
language plpgsql security definer
as $$
declare
  v_was_paused boolean;
begin
  with before as (
    select {schema}.paused_since(i.paused_at, i.paused_until) is not null as was_paused
    from {schema}.installation i
    where i.paused_at is not null
    for update
  )
  update {schema}.installation i
  set
    paused_at = null,
    paused_until = null,
    paused_by = null,
    paused_why = null
  from before b
  returning b.was_paused into v_was_paused;
  if v_was_paused is not true then
    return false;
  end if;
  perform {schema}.log_action('resume'::text, p_why, p_by);
  perform {schema}.wake_up(array(select q.name from {schema}.queue q));
  return true;
end $$;
revoke execute on function {schema}.resume_all(text, text) from public;
