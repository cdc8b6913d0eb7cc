-- Moves the leases of all running jobs along with the server's clock, after a step of p_step_s
-- seconds. Each worker then has half a lease, at most 60 s, to renew. A lease that had expired
-- before the step stays so. p_moved_s: installation.clock_moved_s as the worker knew it when it
-- noticed; if that has changed, another worker has moved the leases.
-- Locks: the row of `installation`; the rows of running jobs, with SKIP LOCKED; index job_lease.
-- Keeps: M33, a lease is a time, whatever happens to the clock.
create or replace function {schema}.leases_move(p_step_s float8, p_moved_s float8)
returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_step interval := p_step_s * interval '1 second';
begin
  update {schema}.installation i
  set clock_moved_s = p_moved_s + p_step_s
  where abs(i.clock_moved_s - p_moved_s) < 0.001;  -- it went through a text
  if not found then
    return;
  end if;
  update {schema}.job j
  set locked_until = least(
    greatest(j.locked_until + v_step, {schema}.clock() + least(held.lease / 2, interval '60 s')),
    {schema}.clock() + held.lease
  )
  from (
    select
      r.id,
      coalesce(
        (
          select t.lease
          from {schema}.job_type t
          where t.name = {schema}.canonical_type(r.job_type)
        ),
        {schema}.lease_default()
      ) as lease
    from {schema}.job r
    where r.status = 'running'
      and (v_step < interval '0' or r.locked_until > {schema}.clock() - v_step)
    for update skip locked
  ) held
  where j.id = held.id;
end $$;
