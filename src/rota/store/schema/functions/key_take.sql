-- Takes a key for a job, and says whether the job has it now. The function has no search_path of
-- its own: its callers have one.
-- Locks: the row of `idempotency` that the key becomes; waits for a transaction that is inserting
--   the same key.
-- Keeps: M51, one job per (job type, key).
create or replace function {schema}.key_take(p_job bigint, p_job_type text, p_key text)
returns boolean
language plpgsql
as $$
declare
  v_name text := {schema}.canonical_type(p_job_type);
  v_aliases text[];
  v_is_own boolean;
begin
  -- A key also counts if it was taken under a former name and committed while the new name was
  -- being declared.
  select t.aliases into v_aliases
  from {schema}.job_type t
  where t.name = v_name
    and t.aliases <> '{}';
  if v_aliases is not null
    and exists (
      select from {schema}.idempotency i
      where i.job_type = any (v_aliases)
        and i.key = p_key
        and (i.expires_at is null or i.expires_at > {schema}.clock())
    )
  then
    return false;
  end if;
  loop
    -- DO NOTHING takes no lock on the row that is there, so a producer's open transaction never
    -- delays the end of that job.
    insert into {schema}.idempotency (job_type, key, job)
    values (v_name, p_key, p_job)
    on conflict do nothing;
    if found then
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
    select i.job = p_job into v_is_own
    from {schema}.idempotency i
    where i.job_type = v_name
      and i.key = p_key;
    if found then
      return v_is_own;
    end if;
    -- Retention deleted the key between these statements, or the key was freed: try again.
  end loop;
end $$;
