-- Returns how many attempts ended in each second since then; 0: p_attempts is NULL.
create or replace function {schema}.per_second(p_attempts bigint, p_since timestamptz)
returns float8
language sql stable
as $$
  select greatest(0, p_attempts) / greatest(1, extract(epoch from {schema}.clock() - p_since))
$$;
