-- Refuses rows that job_refusal refuses: at an INSERT once for the statement, at an UPDATE of a
-- column that a person may have changed once for the row. SECURITY DEFINER: a producer needs INSERT
-- on job and nothing else.
create or replace function {schema}.job_check()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_refusal text;
begin
  if tg_op = 'INSERT' then
    v_refusal := (select min({schema}.job_refusal(row(f.*)::{schema}.job)) from fresh f);
  else
    v_refusal := {schema}.job_refusal(new);
  end if;
  if v_refusal is not null then
    raise exception 'rota.job: %; nothing was written', v_refusal
      using
        errcode = 'check_violation',
        table = 'job',
        constraint = 'job_' || split_part(v_refusal, ' ', 1);
  end if;
  return null;
end $$;
