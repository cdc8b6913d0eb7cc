-- Does holder_meet for jobs whose keys are taken, in the order of the jobs. p_how runs parallel to
-- p_payloads; the other arguments are as in jobs_insert. SECURITY DEFINER, as job_fill;
-- holders_lock checks the right.
-- Locks: the holders that may be changed, in id order.
-- Keeps: M51.
create or replace function {schema}.holders_meet(
  p_payloads jsonb,
  p_keys text[],
  p_groups text[],
  p_which int[],
  p_common jsonb,
  p_how text[]
)
returns table (place bigint, id bigint, status text, change text)
language plpgsql security definer
as $$
declare
  v_job_types text[] := array(
    select p_common -> (coalesce(w.which, 1) - 1) ->> 'job_type'
    from unnest(p_keys, p_which) with ordinality w(key, which, n)
    order by w.n
  );
begin
  if not p_how && '{replace,postpone}'
    and not exists (select from {schema}.job_type t where t.key_scope = 'pending')
    and {schema}.caller_check('job'::text, 'INSERT'::text)
  then
    return query
    select h.place, h.id, h.status, null::text
    from {schema}.keys_held(v_job_types, p_keys) h;
    return;
  end if;
  perform {schema}.holders_lock(
    coalesce(array_agg(a.job_type), '{}'),
    coalesce(array_agg(a.key), '{}')
  )
  from unnest(v_job_types, p_keys, p_how) a(job_type, key, how)
  where a.how in ('replace', 'postpone');
  for n in 1 .. cardinality(p_keys) loop
    return query
    select n::bigint, m.id, m.status, m.change
    from {schema}.holder_meet(
      p_how[n],
      v_job_types[n],
      p_keys[n],
      p_groups[n],
      p_payloads -> (n - 1),
      p_common -> (coalesce(p_which[n], 1) - 1)
    ) m;
  end loop;
end $$;
