-- Says that a job lacks what its type declares: its idempotency_key, its group_key, or what its
-- meta must have under rota.asks (p_meta NULL: not asked, for what was made before the type
-- declared it, or does not know it); NULL: it lacks nothing.
-- Keeps: M51, M60, M62, no call site and no older release can forget a key, a lane or a limit.
create or replace function {schema}.key_refusal(
  p_job_type text, p_is_keyless boolean, p_is_groupless boolean, p_meta jsonb
)
returns text
language sql stable
as $$
  select min(lacking.what)
  from {schema}.job_type t
  cross join lateral (
    select concat(
      format('%s is missing: job type %L declares one', key.name, t.name),
      ', made of ' || nullif(array_to_string(key.arguments, ', '), '')
    )
    from (
      values
        ('idempotency_key', p_is_keyless, t.key_arguments),
        ('group_key', p_is_groupless, t.group_arguments)
    ) key(name, is_missing, arguments)
    where key.is_missing
      and key.arguments is not null
    union all
    select format(
      'meta lacks "%s" under "rota.asks": the code of job type %L makes it', asked.name, t.name
    )
    from {schema}.asks_lacking(t.asks, p_meta) asked(name)
    where p_meta is not null
      and asked.name is not null
  ) lacking(what)
  where t.name = {schema}.canonical_type(p_job_type)
$$;
