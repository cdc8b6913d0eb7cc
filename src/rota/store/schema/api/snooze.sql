-- Delays a running job by at least a second. The attempt does not count.
create or replace function {schema}.snooze(id bigint, claims int, after interval)
returns table (status text, run_at timestamptz)
language plpgsql security definer
as $$
begin
  if snooze.after is null
    or snooze.after not between interval '0' and interval '36525 days'
  then
    raise exception 'rota.snooze: after must be from 0 to a hundred years' using errcode = '22023';
  end if;
  return query
  select b.status, b.run_at
  from {schema}.job_hand_back(
    snooze.id,
    snooze.claims,
    greatest(1, extract(epoch from snooze.after)::float8)
  ) b;
end $$;
revoke execute on function {schema}.snooze(bigint, int, interval) from public;
