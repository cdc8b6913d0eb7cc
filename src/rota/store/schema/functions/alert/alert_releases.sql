-- Says which releases the attempts are of, the most frequent first, and how long ago each started;
-- NULL: no release is known. NULL in the array: an attempt without a release. A release that came
-- back after another counts from its return.
create or replace function {schema}.alert_releases(p_releases text[])
returns text
language sql stable
as $$
  select {schema}.alert_names(array_agg(
    n.name || case
      when r.name is null then ''
      else format(
        ', started %s ago',
        date_trunc('second', greatest({schema}.clock() - r.started_at, interval '0'))
      )
    end
  ))
  from unnest(p_releases) n(name)
  left join {schema}.release r on r.name = n.name
  where n.name is not null
$$;
