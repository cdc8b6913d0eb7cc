-- Cancels or reschedules the job that holds a key (for key_cancel and key_reschedule). If that was
-- refused it looks the holder up again, because another job may have taken the key. It returns the
-- rows of the action, with the job's type: one row 'not found' without an id if no job holds the
-- key, and a row 'ambiguous' for each type if several do.
-- Locks: the job, then its key, which is read without a lock: the end of a job locks its row first.
create or replace function {schema}.key_act(
  p_verb text,
  p_key text,
  p_job_type text,
  p_why text,
  p_by text,
  p_run_at timestamptz,
  p_delay interval,
  p_priority int,
  p_queue text
)
returns table (id bigint, answer text, status text, job_type text)
language plpgsql
as $$
declare
  v_types text[];
  v_ids bigint[];
  v_id bigint;
  v_answer text := 'not found';
  v_status text;
begin
  for attempt in 1 .. 5 loop
    select array_agg(h.job_type), array_agg(h.id) into v_types, v_ids
    from {schema}.key_find(p_key, p_job_type) h;
    if cardinality(v_ids) > 1 then
      return query
      select h.id, 'ambiguous', h.status, h.job_type
      from {schema}.key_find(p_key, p_job_type) h;
      return;
    end if;
    exit when v_ids is null or v_ids[1] = v_id;
    v_id := v_ids[1];
    job_type := v_types[1];
    if p_verb = 'cancel' then
      select a.answer, a.status into v_answer, v_status
      from {schema}.job_cancel(v_ids, p_why, p_by) a;
    else
      select a.answer, a.status into v_answer, v_status
      from {schema}.job_reschedule(
        v_ids, p_why, p_by, p_run_at, p_delay, p_priority, p_queue
      ) a;
    end if;
    exit when v_answer not in ('refused', 'not found');
  end loop;
  id := v_id;
  -- A success of a type with history = 'failures' has left its key and no row.
  answer := case when v_answer = 'not found' and v_ids[1] = v_id then 'refused' else v_answer end;
  status := case when answer = 'refused' then coalesce(v_status, 'succeeded') else v_status end;
  job_type := coalesce(job_type, p_job_type);
  return next;
end $$;
