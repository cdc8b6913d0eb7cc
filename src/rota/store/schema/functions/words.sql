-- Writes a duration in words, as rota.duration.words does.
create or replace function words(p_wait interval)
returns text
language sql immutable parallel safe
set search_path from current
as $$
  select case
    when s < 90 then round(s, 1)::float8 || ' s'
    when s < 5400 then round(s / 60) || ' min'
    when s < 129600 then round(s / 3600) || ' h'
    else round(s / 86400) || ' d'
  end
  from (select extract(epoch from p_wait)::numeric) wait(s)
$$;
