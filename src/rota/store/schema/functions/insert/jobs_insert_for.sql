-- Inserts as jobs_insert, for a producer that may not give ids. SECURITY DEFINER: the producer
-- needs INSERT on each other column. p_ids: from ids_reserve; an id that a job has had is refused.
-- NULL, and nothing is inserted: the producer lacks such a right, or a user's trigger or row-level
-- security would see the owner's rights.
-- Keeps: M20, M51, as jobs_insert; no job gets the id of another.
create or replace function {schema}.jobs_insert_for(
  p_ids bigint[],
  p_payloads jsonb,
  p_keys text[],
  p_groups text[],
  p_which int[],
  p_common jsonb
)
returns bigint[]
language plpgsql security definer
as $$
begin
  if {schema}.job_has_triggers()
    or (select c.relrowsecurity from pg_class c where c.oid = '{schema}.job'::regclass::oid)
    or exists (
      select
      from regexp_split_to_table(
        'payload, idempotency_key, group_key, run_at, expires_at, {common}', ',\s+'
      ) c(name)
      where not has_column_privilege({schema}.caller(), '{schema}.job', c.name, 'INSERT')
    )
  then
    return null;
  end if;
  if {schema}.ids_used(p_ids) is not null then
    raise exception 'rota.jobs_insert: id % is that of another job', {schema}.ids_used(p_ids)
      using errcode = 'invalid_parameter_value';
  end if;
  return {schema}.jobs_insert(p_ids, p_payloads, p_keys, p_groups, p_which, p_common);
end $$;
