-- Returns the breakers that have not been closed since before p_before, the longest first.
create or replace function {schema}.breakers_open(p_before timestamptz, p_limit int)
returns table (name text, key text, opened_at timestamptz, reason text)
language sql stable
as $$
  select b.name, b.key, b.opened_at, b.reason
  from {schema}.breaker b
  where b.state <> 'closed'
    and b.opened_at < p_before
  order by b.opened_at
  limit p_limit
$$;
