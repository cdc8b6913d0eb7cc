-- Ends the statement that would write a row that job_refusal, or job_check, refuses.
create or replace function {schema}.job_refuse(p_refusal text)
returns void
language plpgsql
as $$
begin
  raise exception 'rota.job: %; nothing was written', p_refusal
    using errcode = 'check_violation', schema = '{schema}', table = 'job',
      constraint = 'job_' || split_part(p_refusal, ' ', 1);
end $$;
