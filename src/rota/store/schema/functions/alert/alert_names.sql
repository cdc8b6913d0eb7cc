-- Formats the three most frequent names with their counts.
create or replace function {schema}.alert_names(p_names text[])
returns text
language sql immutable
as $$
  select
    string_agg(
      named.name || ' (' || named.times || ')', ', '
      order by named.times desc, named.name
    )
    || case when max(named.kinds) > 3 then ', …' else '' end
  from (
    select n.name, count(*) as times, count(*) over () as kinds
    from unnest(p_names) n(name)
    group by n.name
    order by 2 desc, 1
    limit 3
  ) named
$$;
