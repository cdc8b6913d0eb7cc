-- Returns a limit. Raises, with the names of all limits, if there is none of that name.
create or replace function {schema}.limit_known(p_name text)
returns {schema}.rate_limit
language plpgsql
as $$
declare
  v_limit {schema}.rate_limit;
begin
  select l.* into v_limit
  from {schema}.rate_limit l
  where l.name = p_name;
  if not found then
    raise no_data_found using
      message = format(
        'there is no rate limit %L; there are: %s',
        p_name,
        coalesce(
          (
            select string_agg(n.name, ', ')
            from (select l.name from {schema}.rate_limit l order by l.name limit 20) n
          ),
          'none'
        )
      ),
      hint = 'A worker or `rota sync` declares the limits that code names.';
  end if;
  return v_limit;
end $$;
