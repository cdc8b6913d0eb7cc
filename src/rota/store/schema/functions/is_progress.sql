-- Says whether this is what rota.progress writes; NULL: there is none.
--
-- PostgreSQL reads more times than other clients: 24:00, second 60, the years after 9999. And it
-- fails on a day that the month lacks. So the text is checked before it is read as a time.
create or replace function {schema}.is_progress(p_progress jsonb)
returns boolean
language plpgsql stable strict parallel safe
as $$
declare
  v_at text := p_progress ->> 'at';
begin
  if (
    jsonb_typeof(p_progress -> 'done') = 'number'
    and jsonb_typeof(p_progress -> 'total') in ('number', 'null')
    and jsonb_typeof(p_progress -> 'note') in ('string', 'null')
    and v_at
      ~ ('^[1-8]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])'
        || 'T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-5]):[0-5]\d)$')
  ) is not true then
    return false;
  end if;
  if substr(v_at, 9, 2)::int
    > extract(day from (left(v_at, 7) || '-01')::date + interval '1 month' - interval '1 day')
  then
    return false;
  end if;
  return v_at::timestamptz >= '1970-01-01 00:00:00+00'
    and v_at::timestamptz < '9000-01-01 00:00:00+00'
    and (p_progress ->> 'done')::numeric between 0 and 9007199254740992
    and ((p_progress ->> 'total')::numeric between 0 and 9007199254740992) is not false;
end $$;
