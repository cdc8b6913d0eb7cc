-- Makes a job of a row that an old producer inserts into the view of import_view. SECURITY DEFINER:
-- the right to insert into the view is enough, and nobody else may make a trigger with it. The row
-- that it returns has the id of the job.
create or replace function {schema}.import_insert()
returns trigger
language plpgsql security definer
as $$
declare
  v_new jsonb := to_jsonb(new);
  v_columns jsonb := tg_argv[0]::jsonb -> 'columns';
  v_payload jsonb := v_new -> (v_columns ->> 'payload');
  v_id bigint;
begin
  insert into {schema}.job (
    job_type, payload, queue, priority, run_at, max_attempts, idempotency_key
  )
  values (
    v_new ->> (v_columns ->> 'job_type'),
    case jsonb_typeof(v_payload)
      when 'string' then (v_payload #>> '{}')::jsonb  -- of a column that is text
      else coalesce(nullif(v_payload, 'null'), '{}')
    end,
    coalesce(tg_argv[0]::jsonb ->> 'queue', v_new ->> (v_columns ->> 'queue')),
    (v_new ->> (v_columns ->> 'priority'))::int,
    coalesce((v_new ->> (v_columns ->> 'run_at'))::timestamptz, {schema}.clock()),
    (v_new ->> (v_columns ->> 'max_attempts'))::int,
    v_new ->> (v_columns ->> 'idempotency_key')
  )
  returning id into v_id;
  if v_id is null then
    return null;  -- another job has its key
  end if;
  if v_columns ? 'id' then
    new := jsonb_populate_record(new, jsonb_build_object(v_columns ->> 'id', v_id));
  end if;
  return new;
end $$;
revoke execute on function {schema}.import_insert() from public;
