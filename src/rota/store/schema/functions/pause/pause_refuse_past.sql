-- Refuses an end of a pause that has passed, or that a client could not read.
create or replace function {schema}.pause_refuse_past(p_until timestamptz)
returns void
language plpgsql
as $$
begin
  if p_until <= {schema}.clock() then
    raise invalid_parameter_value using message = format(
      'until must lie in the future, not at %s; it is %s by the database''s clock',
      p_until, {schema}.clock()
    );
  end if;
  -- Python could not read such a row, nor any other row of the same result.
  if p_until >= '9000-01-01 00:00:00+00' then
    raise invalid_parameter_value using message = format(
      'until must lie before the year 9000, not at %s; '
        || 'leave it out for a pause that lasts until it is resumed',
      p_until
    );
  end if;
end $$;
