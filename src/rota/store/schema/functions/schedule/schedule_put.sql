-- Creates or changes the schedule of a name, from an object with columns of schedule. p_origin is
-- api, cli or sql. A pause and next_run_at stay as in schedules_write. Returns `made`, `changed`,
-- or `code`: code declares the schedule, and nothing changed.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_put(
  p_schedule jsonb,
  p_origin text,
  p_why text default null,
  p_by text default null
)
returns text
language plpgsql security definer
as $$
declare
  v_name text := p_schedule ->> 'name';
  v_refusal text := {schema}.key_refusal(
    p_schedule ->> 'job_type',
    false,
    p_schedule ->> 'group_key' is null,
    coalesce(nullif(p_schedule -> 'meta', 'null'), '{}')
  );
  v_made boolean;
begin
  if v_refusal is not null then
    raise exception
      '%; give the schedule one, which its jobs have; nothing was changed',
      v_refusal
      using errcode = 'invalid_parameter_value';
  end if;
  select w.made into v_made
  from {schema}.schedules_write(jsonb_build_array(p_schedule), p_origin, null::text) w;
  if v_made is null then
    return 'code';
  end if;
  perform {schema}.log_action(
    'put'::text, p_why, p_by, v_name,
    -- The log gets no payload that says, or may say, something of people.
    p_detail => case
      when {schema}.hidden_fields(p_schedule ->> 'job_type') is null
        and exists (
          select from {schema}.job_type t
          where t.name = {schema}.canonical_type(p_schedule ->> 'job_type')
        )
        then p_schedule
      else p_schedule - 'payload' #- '{meta,rota.asks}'
    end
  );
  return case when v_made then 'made' else 'changed' end;
end $$;
revoke execute on function {schema}.schedule_put(jsonb, text, text, text) from public;
