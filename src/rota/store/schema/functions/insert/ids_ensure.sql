-- Moves sequences that are behind their ids to the highest id; never backwards, so an id that a
-- bulk has reserved stays its own. Returns the moved ones, with the last id of each.
-- Locks: only sequences that are behind: nextval waits, and this call waits for transactions that
--   have called nextval. It reads all keys and runs.
-- Keeps: M2; no job gets the id of another.
create or replace function {schema}.ids_ensure()
returns table (sequence text, last_id bigint)
language plpgsql
as $$
declare
  v_sequence text;
begin
  for v_sequence in select b.sequence from {schema}.ids_behind(null::int) b loop
    -- Sets what is set already, for the lock: other sessions must take no ids between the reading
    -- of a sequence and its setval.
    execute format('alter sequence %s no cycle', v_sequence);
  end loop;
  return query
  select b.sequence, setval(b.sequence::regclass, b.highest_id)
  from {schema}.ids_behind(null::int) b;
end $$;
