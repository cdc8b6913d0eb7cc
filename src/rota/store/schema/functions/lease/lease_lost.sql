-- Raises the error of a worker that no longer holds its job.
create or replace function {schema}.lease_lost(p_id bigint, p_claims int)
returns void
language plpgsql
as $$
begin
  raise exception 'lease lost: job % is no longer held under claim %', p_id, p_claims
    using
      errcode = 'RT001',
      hint = 'Stop working on it: its lease expired, a person took it away, '
        || 'or this claim has ended already. Nothing was written.';
end $$;
