-- Returns the payload of a job that follows a batch (p_job, as batch_follow has it) and takes
-- results of members. p_job.takes says which, by field: the id of a job, or an array of ids for an
-- array of results. null instead of an id is the only member, which has the lowest id. A requeued
-- job gives the result of the last job of its chain (see job_end); null if its handler returned
-- nothing, or the result was not kept. Raises object_not_in_prerequisite_state for a job that has
-- not succeeded.
-- Locks: none; index batch_part_pkey, and those of job_end.
create or replace function {schema}.batch_payload(p_batch bigint, p_job jsonb)
returns jsonb
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_payload jsonb := p_job -> 'payload';
  v_field text;
  v_of jsonb;
  v_id bigint;
  v_outcome text;
  v_result jsonb;
  v_results jsonb;
begin
  for v_field, v_of in
    select t.key, t.value
    from jsonb_each(p_job -> 'takes') t
  loop
    v_results := '[]';
    for v_id, v_outcome, v_result in
      select o.id, e.outcome, e.result
      from (
        select
          coalesce(
            named.id::bigint,
            (select min(p.first_id) from {schema}.batch_part p where p.batch = p_batch)
          ) as id,
          named.place
        from jsonb_array_elements_text(
          case jsonb_typeof(v_of) when 'array' then v_of else jsonb_build_array(v_of) end
        ) with ordinality named(id, place)
      ) o
      cross join lateral {schema}.job_end(o.id) e
      order by o.place
    loop
      if v_outcome is distinct from 'succeeded' then
        raise object_not_in_prerequisite_state using message = format(
          'argument %s takes the result of job %s, which %s',
          v_field, v_id, case
            when v_outcome is null then 'has not ended'
            when v_outcome = 'gone' then 'is not kept'
            else 'is ' || v_outcome
          end
        );
      end if;
      v_results := v_results || jsonb_build_array(v_result);
    end loop;
    v_payload := v_payload || jsonb_build_object(
      v_field, case jsonb_typeof(v_of) when 'array' then v_results else v_results -> 0 end
    );
  end loop;
  return v_payload;
end $$;
