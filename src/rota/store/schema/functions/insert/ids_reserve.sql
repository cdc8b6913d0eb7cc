-- Reserves ids for a bulk, in ascending order, up to ten millions. SECURITY DEFINER: a producer
-- needs no right on the sequence; its right to insert is checked, because a sequence has an end.
-- Locks: none.
-- Keeps: jobs due at the same time run in the order of the call; M15, no other role moves it.
create or replace function {schema}.ids_reserve(p_count int)
returns bigint[]
language plpgsql volatile security definer
as $$
begin
  perform {schema}.caller_check('job'::text, 'INSERT'::text);
  if p_count > 10000000 then
    raise exception 'rota.ids_reserve: at most 10000000 ids at once, not %', p_count
      using errcode = 'invalid_parameter_value';
  end if;
  return array(
    select nextval('{schema}.job_id_seq')
    from generate_series(1, p_count)
  );
end $$;
