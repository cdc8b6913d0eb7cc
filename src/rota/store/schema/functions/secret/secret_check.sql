-- Refuses a schedule, or a batch, whose job has a secret argument in clear.
-- Keeps: M45, as secret_refusal.
create or replace function {schema}.secret_check()
returns trigger
language plpgsql security definer
as $$
declare
  v_row jsonb := to_jsonb(new);
  v_refusal text := (
    select min({schema}.secret_refusal(job.value ->> 'job_type', job.value -> 'payload'))
    from (
      select v_row
      union all
      select follower.value
      from jsonb_each(v_row -> 'then_jobs') follower
    ) job(value)
  );
begin
  if v_refusal is not null then
    raise exception 'rota.%: %; nothing was written', tg_table_name, v_refusal
      using errcode = 'check_violation', schema = '{schema}', table = tg_table_name;
  end if;
  return new;
end $$;
