-- Fills in what a producer left out, takes its idempotency key, and records a run of its schedule.
-- The trigger fires only for rows that need it. A text that is too long for an index is refused
-- here: job_check comes after the indexes. SECURITY DEFINER: a producer needs INSERT on job and
-- nothing else.
create or replace function {schema}.job_fill()
returns trigger
language plpgsql security definer
as $$
declare
  v_type {schema}.job_type;
begin
  if length(new.job_type) > 200
    or length(new.queue) > 100
    or length(new.idempotency_key) > 255
    or length(new.group_key) > 255
  then
    perform {schema}.job_refuse({schema}.job_refusal(new));
  end if;
  if new.run_at < {schema}.clock() then
    new.run_at := {schema}.clock();
  end if;
  if new.queue is null or new.priority is null then
    select * into v_type
    from {schema}.job_type
    where name = {schema}.canonical_type(new.job_type);
    new.queue := coalesce(new.queue, v_type.queue, 'default');
    new.priority := coalesce(new.priority, v_type.priority, 0);
    new.expires_at := coalesce(new.expires_at, new.run_at + v_type.expires);
    if new.group_key is not null then
      new.group_capacity := coalesce(new.group_capacity, v_type.group_capacity);
    end if;
  end if;
  -- The setting says that jobs_insert has taken the keys; job_check looks for each.
  if new.idempotency_key is not null
    and current_setting('{schema}.keys_taken', true) is distinct from 'on'
    and not {schema}.key_take(new.id, new.job_type, new.idempotency_key)
  then
    return null;  -- the key is taken: INSERT 0 0
  end if;
  if new.schedule is not null then
    insert into {schema}.schedule_run (schedule, job, scheduled_for)
    values (new.schedule, new.id, new.scheduled_for)
    on conflict do nothing;
  end if;
  return new;
end $$;
