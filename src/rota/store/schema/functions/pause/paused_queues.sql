-- Returns those of these queues that may not be claimed from now. Every claim calls it, so it has
-- no search_path of its own: job_claim has one.
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
