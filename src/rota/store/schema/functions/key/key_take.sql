-- Takes a key for a job, and returns whether the job has it now. A key whose type has key_scope
-- 'pending' is only taken if its holder is kept from starting until this transaction ends: it must
-- see what this transaction writes. The function has no search_path: its callers have one.
-- Locks: the row of `idempotency` that the key becomes; waits for a transaction that is inserting
--   the same key, or claiming its holder. With 'pending' the holder's row, against claims.
-- Keeps: M51, one job per (job type, key), also where the key was erased.
create or replace function {schema}.key_take(p_job bigint, p_job_type text, p_key text)
returns boolean
language plpgsql
as $$
declare
  v_name text := {schema}.canonical_type(p_job_type);
  v_aliases text[];
  v_holder bigint;
begin
  -- A key under a former name also counts, committed while the new name was being declared.
  select t.aliases into v_aliases
  from {schema}.job_type t
  where t.name = v_name
    and t.aliases <> '{}';
  loop
    v_holder := null;
    if v_aliases is not null then
      select i.job into v_holder
      from {schema}.idempotency i
      where i.job_type = any (v_aliases)
        and i.key = p_key
        and (i.expires_at is null or i.expires_at > {schema}.clock())
      limit 1;
    end if;
    if v_holder is null then
      -- DO NOTHING takes no lock on the present row, so no open transaction delays that job's end.
      insert into {schema}.idempotency (job_type, key, job)
      values (v_name, p_key, p_job)
      on conflict do nothing;
      if found then
        -- Only now: the INSERT may have waited for an erasure. Without any, no call is made.
        exit when (select n.keys_erased from {schema}.installation n)
          and {schema}.key_is_erased(array_append(v_aliases, v_name), p_key);
        return true;
      end if;
      update {schema}.idempotency
      set
        job = p_job,
        expires_at = null
      where job_type = v_name
        and key = p_key
        and expires_at <= {schema}.clock();
      if found then
        return true;
      end if;
      select i.job into v_holder
      from {schema}.idempotency i
      where i.job_type = v_name
        and i.key = p_key;
    end if;
    if v_holder = p_job then
      return true;
    end if;
    -- Without an expiry its job has not ended: it was deleted by hand, or never inserted.
    delete from {schema}.idempotency i
    where i.job_type = any (array_append(v_aliases, v_name))
      and i.key = p_key
      and i.job = v_holder
      and i.expires_at is null
      and not exists (select from {schema}.job j where j.id = v_holder);
    continue when found;
    if v_holder is not null and {schema}.holder_keep(v_holder, v_name, p_key) then
      return false;
    end if;
    -- The key was deleted or freed between these statements: try again.
  end loop;
  delete from {schema}.idempotency
  where job_type = v_name
    and key = p_key
    and job = p_job;
  return false;
end $$;
