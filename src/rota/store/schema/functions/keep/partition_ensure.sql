-- Creates the partition of p_table for a day (UTC), as the schema's owner, unless it exists.
create or replace function {schema}.partition_ensure(p_table text, p_day date)
returns boolean
language plpgsql
as $$
declare
  v_name text := p_table || '_' || to_char(p_day, 'YYYYMMDD');
  -- With the offset: the session's time zone would move a plain date.
  v_from text := p_day::text || ' 00:00:00+00';
  v_to text := (p_day + 1)::text || ' 00:00:00+00';
begin
  if to_regclass('{schema}.' || v_name) is not null then
    return false;
  end if;
  execute format(
    'create table {schema}.%I (like {schema}.%I including all, '
      'check (finished_at >= %L and finished_at < %L))',
    v_name, p_table, v_from, v_to
  );
  execute format('alter table {schema}.%I replica identity full', v_name);
  execute format(
    'alter table {schema}.%I attach partition {schema}.%I for values from (%L) to (%L)',
    p_table, v_name, v_from, v_to
  );
  return true;
end $$;
