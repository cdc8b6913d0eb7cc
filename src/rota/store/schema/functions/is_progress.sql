-- Says whether this is what rota.progress writes; NULL: there is none. The planner does not inline
-- it, because job_refusal needs it for few rows and would prepare every call in it for each INSERT.
create or replace function {schema}.is_progress(p_progress jsonb)
returns boolean
language plpgsql stable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(
    jsonb_typeof(p_progress -> 'done') = 'number'
    and jsonb_typeof(p_progress -> 'total') in ('number', 'null')
    and jsonb_typeof(p_progress -> 'note') in ('string', 'null')
    and p_progress ->> 'at'
      ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$'
    and (p_progress ->> 'at')::timestamptz >= '1970-01-01 00:00:00+00',
    false
  );
end $$;
