-- Moves the sequences that are behind their ids to the highest one; never backwards, so an id that
-- a bulk has reserved stays its own. Returns those that it moved, with the last id of each.
-- Locks: only when one is behind, its sequence: nextval waits, and so does this for transactions
--   that have called it. It reads all keys and all runs: it is for what a person does after a
--   restore.
-- Keeps: M2; no job gets the id of another.
create or replace function {schema}.ids_ensure()
returns table (sequence text, last_id bigint)
language plpgsql
as $$
declare
  v_sequence text;
begin
  for v_sequence in select b.sequence from {schema}.ids_behind(null::int) b loop
    -- A setting that it has: for the lock. Between the reading of a sequence and its setval another
    -- session could take ids.
    execute format('alter sequence %s no cycle', v_sequence);
  end loop;
  return query
  select b.sequence, setval(b.sequence::regclass, b.highest_id)
  from {schema}.ids_behind(null::int) b;
end $$;
