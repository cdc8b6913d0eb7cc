-- Returns what is wrong with the columns that few rows have; NULL: nothing (for job_refusal). A
-- single INSERT prepares each call in job_row_is_plain, so these columns share one call.
create or replace function {schema}.job_rare_refusal(
  p_timeout interval,
  p_group_key text,
  p_lane_capacity int
)
returns text
language plpgsql stable parallel safe
as $$
begin
  return case
    when p_timeout not between interval '1 millisecond' and interval '36525 days'
      then format('timeout must be from 1 ms to a hundred years, not %s', p_timeout)
    when length(p_group_key) not between 1 and 255
      then format(
        'group_key must be 1 to 255 characters, not %s; hash a longer one', length(p_group_key)
      )
    when p_lane_capacity not between 1 and 1000
      then format('group_capacity must be from 1 to 1000, not %s', p_lane_capacity)
  end;
end $$;
