-- Returns the types, former names too, of whose jobs a claim asks more than their lanes and caps:
-- those with a rate limit, or with a breaker of which some key is not closed. The planner inlines
-- the function, because it has no search_path of its own.
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
