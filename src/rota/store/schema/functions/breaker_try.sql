-- Lets claimed jobs pass their breakers, each at the last moment before it begins. p_asked is an
-- array of {name, key, job, claims, deadline_s}. A job passes if its breaker is closed; if the
-- breaker has been open for its time, one job of all workers passes, as the trial: until its result
-- is recorded, its claim is over, or deadline_s has passed. Returns each job with the state of its
-- breaker: closed (it may begin), own_trial (it may begin, and is the trial), open or trial (it
-- must wait for wait_s; NULL: until a person resets the breaker).
-- Locks: the rows of breakers that are due, in the order of their names; index breaker_pkey.
-- Keeps: M63, exactly one trial: whoever waited for the row reads it again in a new statement.
create or replace function {schema}.breaker_try(p_asked jsonb)
returns table (job bigint, state text, wait_s float8, blocked_by text)
language plpgsql
set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_asked record;
begin
  for v_asked in
    select a.*
    from jsonb_to_recordset(p_asked) a(
      name text, key text, job bigint, claims int, deadline_s float8
    )
    order by a.name, a.key, a.job
  loop
    job := v_asked.job;
    select l.blocked_by, l.state, l.wait_s
    into blocked_by, state, wait_s
    from {schema}.breaker_look(
      jsonb_build_array(jsonb_build_object('name', v_asked.name, 'key', v_asked.key))
    ) l;
    if state = 'due' then
      perform
      from {schema}.breaker b
      where b.name = v_asked.name
        and b.key = v_asked.key
      for no key update;
      select s.state, s.wait_s
      into state, wait_s
      from {schema}.breaker_state(v_asked.name, v_asked.key) s;
      if state = 'due' then
        update {schema}.breaker b
        set
          state = 'trial',
          trial_job = v_asked.job,
          trial_claim = v_asked.claims,
          open_until = {schema}.clock() + v_asked.deadline_s * interval '1 second',
          changed_at = {schema}.clock(),
          changed_by = null
        where b.name = v_asked.name
          and b.key = v_asked.key;
        state := 'own_trial';
      end if;
    end if;
    state := coalesce(state, 'closed');
    return next;
  end loop;
end $$;
