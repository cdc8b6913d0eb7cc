-- Returns the types, former names too, that have a rate limit, or a breaker with a key that is not
-- closed: a claim asks more of their jobs. The function has no search_path: the planner inlines it.
-- Locks: none; index job_type_asking.
create or replace function {schema}.types_asking()
returns setof text
language sql stable
as $$
  select unnest(t.name || t.aliases)
  from {schema}.job_type t
  where t.rate_limit is not null
    or t.breaker is not null
      and (
        select true
        from {schema}.breaker b
        where b.name = t.breaker
          and b.state <> 'closed'
        limit 1
      )
$$;
