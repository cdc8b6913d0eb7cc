-- Looks at breakers: returns those of p_asked, an array of {name, key}, at which a job must wait or
-- one job may try. blocked_by is the key that holds the job up: a person may have opened all keys
-- of a breaker at once, which is the key ''; once that time is over, it holds up none.
-- Locks: none; index breaker_pkey.
-- Keeps: M63, a look writes nothing.
create or replace function {schema}.breaker_look(p_asked jsonb)
returns table (name text, key text, blocked_by text, state text, wait_s float8)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct on (a.name, a.key) a.name, a.key, held.key, s.state, s.wait_s
  from jsonb_to_recordset(p_asked) a(name text, key text)
  cross join lateral (values (''), (a.key)) held(key)
  cross join lateral {schema}.breaker_state(a.name, held.key) s
  where held.key = a.key
    or s.state = 'open'
  order by a.name, a.key, held.key = a.key
$$;
