-- Asks for a report. Returns its run, and whether the run is new: the same name and parameters are
-- one run while it is queued or runs, and for p_reuse after it was ready; NULL: not then. p_meta:
-- meta of its job.
-- Locks: the row of the run.
-- Keeps: M51, a double click makes one report; M20, in the caller's transaction.
create or replace function {schema}.report_request(
  p_name text,
  p_params jsonb,
  p_by text default null,
  p_meta jsonb default null,
  p_reuse interval default null
)
returns table (run bigint, created boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_digest text := encode(sha256(convert_to(p_name || chr(10) || p_params, 'UTF8')), 'hex');
  v_job bigint := nextval('{schema}.job_id_seq');
begin
  if p_name is null or length(p_name) not between 1 and 100 then
    raise exception 'a report''s name has 1 to 100 characters'
      using errcode = 'invalid_parameter_value';
  end if;
  loop
    select r.id into run
    from {schema}.report_run r
    where r.digest = v_digest
    for no key update;
    if found then
      if (
        select s.status in ('queued', 'running')
          -- A run that became ready while this call waited is not newer than the request.
          or s.status = 'ready'
          and least(s.finished_at, {schema}.clock()) > {schema}.clock() - p_reuse
        from {schema}.report_runs(run) s
      ) then
        created := false;
        return next;
        return;
      end if;
      update {schema}.report_run r
      set digest = null
      where r.id = run;
    end if;
    insert into {schema}.report_run as r (name, params, asked_by, job, digest)
    values (p_name, p_params, {schema}.one_line(p_by, 200), v_job, v_digest)
    on conflict do nothing
    returning r.id into run;
    exit when found;
  end loop;
  insert into {schema}.job (id, job_type, payload, meta)
  values (v_job, 'report.start', jsonb_build_object('run', run), p_meta);
  created := true;
  return next;
end $$;
revoke execute on function {schema}.report_request(text, jsonb, text, jsonb, interval) from public;
