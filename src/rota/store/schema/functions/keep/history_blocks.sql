-- Returns how many blocks a day of history has; NULL: history has no such day.
create or replace function {schema}.history_blocks(p_day timestamptz)
returns bigint
language sql stable
as $$
  select pg_relation_size(p.day) / current_setting('block_size')::int
  from (
    select to_regclass(
      '{schema}.job_history_' || to_char(p_day at time zone 'UTC', 'YYYYMMDD')
    ) as day
  ) p
  where p.day is not null
$$;
