-- Writes documents whose sealed values are sealed anew, where the old document still stands.
-- Returns how many rows it wrote. p_place: job, job_history, schedule or batch, whose rows p_refs
-- name; otherwise a package's table, whose rows are found by the old document.
-- Locks: the rows; indexes job_pkey, job_history_id, schedule_pkey and batch_pkey.
-- Keeps: M45.
create or replace function {schema}.sealed_write(
  p_place text, p_refs text[], p_olds text[], p_news text[]
)
returns int
language plpgsql
as $$
declare
  v_count int;
begin
  execute format(
    'update {schema}.%1$I t '
    'set %2$I = a.new::jsonb '
    'from unnest($1, $2, $3) a(ref, old, new) '
    'where %3$s and t.%2$I = a.old::jsonb',
    p_place,
    case
      when p_place in ('job', 'job_history', 'schedule') then 'payload'
      when p_place = 'batch' then 'then_jobs'
      else 'sealed'
    end,
    case
      when p_place in ('job', 'job_history', 'batch') then 't.id = a.ref::bigint'
      when p_place = 'schedule' then 't.name = a.ref'
      else 'true'
    end
  ) using p_refs, p_olds, p_news;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
