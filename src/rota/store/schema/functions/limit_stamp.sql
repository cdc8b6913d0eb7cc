-- Returns what the reservations of a key rest on: a change of the limit, or a key whose clock was
-- moved, makes it another. NULL: there is no such limit.
create or replace function {schema}.limit_stamp(p_limit {schema}.rate_limit, p_moves int)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_limit.name is not null
      then concat_ws(
        ' ', p_limit.starts, extract(epoch from p_limit.per), p_limit.burst, coalesce(p_moves, 0)
      )
  end
$$;
