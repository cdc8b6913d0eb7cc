-- Makes a batch without members, and returns its id; batch_add adds members in the same
-- transaction. The batch counts as one member of p_parent, which must not have ended. SECURITY
-- DEFINER: a producer needs no right on a table but INSERT on job.
-- Locks: the row of the parent, shared, against a count meanwhile; index batch_pkey.
-- Keeps: M72, what follows a batch waits for the batches in it.
create or replace function {schema}.batch_open(p_then jsonb, p_on_failure text, p_parent bigint)
returns bigint
language plpgsql security definer
as $$
declare
  v_id bigint;
  v_parent {schema}.batch;
begin
  if p_parent is not null then
    select b.* into v_parent
    from {schema}.batch b
    where b.id = p_parent
    for share;
    if v_parent.id is null or v_parent.ended_at is not null then
      raise invalid_parameter_value using message = case
        when v_parent.id is null then format('there is no batch %s', p_parent)
        else format('batch %s has ended: it takes no more members', p_parent)
      end;
    end if;
    insert into {schema}.batch_delta (batch, total) values (p_parent, 1);
  end if;
  insert into {schema}.batch (parent, on_failure, then_jobs)
  values (p_parent, p_on_failure, p_then)
  returning id into v_id;
  return v_id;
end $$;
revoke execute on function {schema}.batch_open(jsonb, text, bigint) from public;
