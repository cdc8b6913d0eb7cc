-- Deletes a schedule; its runs stay. Returns `deleted`, `code` (code declares it) or `not found`.
-- Locks: the row of the schedule.
-- Keeps: M87, who and why.
create or replace function {schema}.schedule_delete(
  p_name text,
  p_why text default null,
  p_by text default null
)
returns text
language plpgsql security definer
as $$
begin
  delete from {schema}.schedule s
  where s.name = p_name
    and (s.origin <> 'code' or s.disabled_at is not null);
  if not found then
    return case
      when exists (select from {schema}.schedule s where s.name = p_name) then 'code'
      else 'not found'
    end;
  end if;
  perform {schema}.log_action('delete'::text, p_why, p_by, p_name);
  return 'deleted';
end $$;
revoke execute on function {schema}.schedule_delete(text, text, text) from public;
