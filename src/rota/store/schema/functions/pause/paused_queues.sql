-- Returns the queues among these that may not be claimed now. Every claim calls the function, so it
-- has no search_path: job_claim has one.
create or replace function {schema}.paused_queues(p_queues text[])
returns text[]
language plpgsql stable
as $$
begin
  if {schema}.is_paused() then
    return p_queues;
  end if;
  return array(
    select q.name
    from {schema}.queue q
    where q.name = any (p_queues)
      and {schema}.is_in_force(q.paused_at, q.paused_until)
  );
end $$;
