-- Says which releases the attempts are of, the most frequent first, and how long ago each started;
-- NULL: no release is known. NULL in the array: an attempt without a release. A release that came
-- back after another counts from its return.
create or replace function {schema}.alert_releases(p_releases text[])
returns text
language sql stable
as $$
  select
    string_agg(
      named.times
      || case when named.place = 1 then format(' of %s by release ', named.attempts) else ' by ' end
      || named.name
      || case
        when r.name is null then ''
        else format(
          ', started %s ago',
          date_trunc('second', greatest({schema}.clock() - r.started_at, interval '0'))
        )
      end,
      '; '
      order by named.place
    )
    || case when max(named.kinds) > 3 then '; …' else '' end
  from (
    select
      n.name,
      count(*) as times,
      cardinality(p_releases) as attempts,
      count(*) over () as kinds,
      row_number() over (order by count(*) desc, n.name) as place
    from unnest(p_releases) n(name)
    where n.name is not null
    group by n.name
    order by 5
    limit 3
  ) named
  left join {schema}.release r on r.name = named.name
$$;
