-- Returns the bucket of a duration: bucket b holds durations up to 1.2 to the power of b
-- milliseconds. The function has no search_path: the planner inlines it.
create or replace function {schema}.time_bucket(p_took interval)
returns int
language sql immutable parallel safe
as $$
  select case
    when p_took is not null
      then greatest(
        0,
        least(
          130,
          ceil(ln(greatest(extract(epoch from p_took)::float8, 0.001) * 1000) / ln(1.2::float8))
        )
      )::int
  end
$$;
