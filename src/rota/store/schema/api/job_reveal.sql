-- Returns the payload of a job as it is stored, unmasked but still sealed, and records who looked
-- and why (required). NULL: there is no such job, and nothing is recorded.
-- Locks: none; indexes job_pkey and job_history_id.
-- Keeps: M45 and M87, who looked and why.
create or replace function {schema}.job_reveal(p_id bigint, p_why text, p_by text default null)
returns jsonb
language plpgsql security definer
as $$
declare
  v_why text := {schema}.one_line(p_why, 500);
  v_payload jsonb;
begin
  if v_why is null then
    raise exception 'say why the values of this job are shown: the reason is recorded'
      using errcode = 'invalid_parameter_value';
  end if;
  select j.payload into v_payload
  from {schema}.jobs j
  where j.id = p_id;
  if v_payload is not null then
    insert into {schema}.action (verb, job, by, why)
    values ('reveal', p_id, coalesce({schema}.one_line(p_by, 200), session_user), v_why);
  end if;
  return v_payload;
end $$;
revoke execute on function {schema}.job_reveal(bigint, text, text) from public;
