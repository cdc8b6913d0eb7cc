-- Lets a restored copy work: records its own identity, and moves sequences that are behind their
-- ids. Returns false when the recorded identity was right already.
-- Locks: the row of `installation`; as ids_ensure.
-- Keeps: M87; a production dump in staging does nothing until a person releases it.
create or replace function {schema}.resume_copy(p_why text default null, p_by text default null)
returns boolean
language plpgsql security definer
as $$
declare
  v_copied text := {schema}.copy_check();
begin
  perform {schema}.ids_ensure();
  if v_copied is null then
    return false;
  end if;
  perform {schema}.installation_record(true);
  perform {schema}.log_action(
    'resume'::text, p_why, p_by, p_detail => jsonb_build_object('copy', v_copied)
  );
  perform {schema}.wake_up(array(select q.name from {schema}.queue q));
  return true;
end $$;
revoke execute on function {schema}.resume_copy(text, text) from public;
