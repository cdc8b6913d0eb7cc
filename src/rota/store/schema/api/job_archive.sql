-- Archives dead jobs with a reason, which is required. Their keys are freed.
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M44; M51, an archived job frees its key.
create or replace function {schema}.job_archive(p_ids bigint[], p_why text, p_by text default null)
returns table (id bigint, answer text, status text)
language plpgsql security definer
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
as $$
declare
  v_why text := {schema}.one_line(p_why, 500);
  v_dead bigint[];
begin
  if v_why is null then
    raise exception 'say why these jobs are archived: the reason is what stays of the decision'
      using errcode = 'invalid_parameter_value';
  end if;
  perform {schema}.partitions_ensure(0);
  v_dead := {schema}.dead_lock(p_ids);
  perform {schema}.dead_resolve(
    v_dead,
    array_fill('{"as": "archived"}'::jsonb, array[cardinality(v_dead)]),
    v_why,
    coalesce({schema}.one_line(p_by, 200), session_user)
  );
  return query
  select a.id, a.answer, a.status
  from {schema}.job_answers(p_ids, v_dead, 'done'::text) a;
end $$;
revoke execute on function {schema}.job_archive(bigint[], text, text) from public;
