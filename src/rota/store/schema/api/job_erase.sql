-- Erases payload, meta, result, progress, errors, reasons and effects of jobs; their keys become
-- hashes. A waiting job is cancelled, a dead job archived; a running job is erased within an hour
-- of its end. The audit log says who, why (required) and how many. p_filter: a hash of what was
-- searched for. Returns for each job that exists: erased, requested, or erased before.
-- Locks: the rows of the jobs, in id order; index job_pkey. Then as jobs_erase.
-- Keeps: M45, a person's data can be erased; M87, who and why.
create or replace function {schema}.job_erase(
  p_ids bigint[],
  p_why text,
  p_by text default null,
  p_filter text default null
)
returns table (id bigint, answer text)
language plpgsql security definer
as $$
declare
  v_why text := {schema}.one_line(p_why, 500);
  v_erased bigint[];
  v_requested bigint[];
begin
  if v_why is null then
    raise exception 'say why these jobs are erased: the reason is what stays'
      using errcode = 'invalid_parameter_value';
  end if;
  p_ids := array(
    select distinct i.id
    from unnest(p_ids) i(id)
    where exists (select from {schema}.jobs j where j.id = i.id)
    order by i.id
  );
  v_erased := array(
    select {schema}.jobs_erase(p_ids, coalesce({schema}.one_line(p_by, 200), session_user))
  );
  v_requested := array(select j.id from {schema}.job j where j.id = any (p_ids));
  perform {schema}.log_action('erase'::text, v_why, p_by, p_detail => jsonb_strip_nulls(
    jsonb_build_object(
      'erased', cardinality(v_erased), 'running', cardinality(v_requested), 'filter', p_filter
    )
  ));
  return query
  select
    i.id,
    case
      when i.id = any (v_erased) then 'erased'
      when i.id = any (v_requested) then 'requested'
      else 'erased before'
    end
  from unnest(p_ids) i(id)
  order by i.id;
end $$;
revoke execute on function {schema}.job_erase(bigint[], text, text, text) from public;
