-- Returns the first block of a day of history that was begun after p_at, less one. Rows are
-- appended, so the first row of a block shows when the block was begun. A binary search finds it in
-- a dozen look-ups, without an index. It reads the day through job_history: a reader has no right
-- to a partition that is younger than the grant.
create or replace function {schema}.history_block(
  p_day timestamptz,
  p_at timestamptz,
  p_blocks bigint
)
returns bigint
language plpgsql stable
as $$
declare
  v_low bigint := 0;
  v_high bigint := p_blocks;
  v_middle bigint;
  v_at timestamptz;
begin
  while v_low < v_high loop
    v_middle := (v_low + v_high) / 2;
    execute format(
      'select h.finished_at from {schema}.job_history h '
        'where h.finished_at >= $1 and h.finished_at < $1 + interval ''24 hours'' '
        'and h.ctid >= %L::tid and h.ctid < %L::tid limit 1',
      format('(%s,0)', v_middle), format('(%s,0)', v_middle + 16)
    ) into v_at using p_day;
    if v_at < p_at then
      v_low := v_middle + 1;
    else
      v_high := v_middle;
    end if;
  end loop;
  return greatest(0, v_low - 1);
end $$;
