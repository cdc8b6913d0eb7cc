-- Returns why a type may not have this payload: a secret argument is in clear; NULL: none is. The
-- text never has the value. An argument may be left out, or be null.
-- Keeps: M45, a secret argument is stored sealed, whoever inserts the row.
create or replace function {schema}.secret_refusal(p_job_type text, p_payload jsonb)
returns text
language sql stable parallel safe
as $$
  select format(
    'payload has %s in clear, a secret argument of type %s, which is stored sealed: enqueue it '
      'with Python, or store what its rota.Secret(…).seal() returns',
    min(field.name), min(t.name)
  )
  from {schema}.job_type t
  cross join lateral unnest(t.secret_fields) field(name)
  where (t.name = p_job_type or p_job_type = any (t.aliases))
    and p_payload -> field.name <> 'null'
    and not {schema}.is_sealed(p_payload -> field.name)
  having count(*) > 0
$$;
