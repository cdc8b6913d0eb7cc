-- Fills in what a producer left out, and takes its idempotency key. The trigger fires only for rows
-- that need it: a row with queue and priority, as our own client writes it, counts as complete.
-- SECURITY DEFINER: a producer needs INSERT on job and nothing else.
create or replace function {schema}.job_fill()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text := {schema}.canonical_type(new.job_type);
  v_type {schema}.job_type;
  v_aliases text[];
begin
  if new.run_at < {schema}.clock() then
    new.run_at := {schema}.clock();
  end if;
  if new.queue is null or new.priority is null then
    select * into v_type
    from {schema}.job_type
    where name = v_name;
    new.queue := coalesce(new.queue, v_type.queue, 'default');
    new.priority := coalesce(new.priority, v_type.priority, 0);
    new.expires_at := coalesce(new.expires_at, new.run_at + v_type.expires);
  end if;
  if new.idempotency_key is not null then
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
          and i.key = new.idempotency_key
          and (i.expires_at is null or i.expires_at > {schema}.clock())
      )
    then
      return null;
    end if;
    loop
      -- DO NOTHING takes no lock on the row that is there, so a producer's open transaction never
      -- delays the end of that job.
      insert into {schema}.idempotency (job_type, key, job)
      values (v_name, new.idempotency_key, new.id)
      on conflict do nothing;
      exit when found;
      update {schema}.idempotency
      set
        job = new.id,
        expires_at = null
      where job_type = v_name
        and key = new.idempotency_key
        and expires_at <= {schema}.clock();
      exit when found;
      if exists (
        select from {schema}.idempotency i
        where i.job_type = v_name
          and i.key = new.idempotency_key
      ) then
        return null;  -- the key is taken: INSERT 0 0
      end if;
      -- Retention deleted the key between these statements, or the key was freed: try again.
    end loop;
  end if;
  return new;
end $$;
