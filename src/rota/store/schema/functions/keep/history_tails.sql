-- Returns the days from p_from until now with the blocks of history in which a row may have ended
-- since p_from: from first_block up to blocks, NULL: history does not have the day.
create or replace function {schema}.history_tails(p_from timestamptz)
returns table (day timestamptz, first_block bigint, blocks bigint)
language sql stable
as $$
  select
    d.day,
    {schema}.history_block(d.day, p_from - interval '1 minute', b.blocks),
    b.blocks
  from generate_series(
    date_trunc('day', p_from, 'UTC'),
    {schema}.clock(),
    interval '24 hours'
  ) d(day)
  cross join lateral (
    select {schema}.history_blocks(d.day) as blocks
  ) b
$$;
