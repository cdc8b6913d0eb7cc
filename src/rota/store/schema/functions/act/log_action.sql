-- Writes to the audit log what a person did to a schedule, a queue or a job; with none of them, to
-- everything.
-- In a restore without sequences it sets these right first, because a copy is paused first.
-- Locks: only then as ids_ensure.
-- Keeps: M87, who and why.
create or replace function {schema}.log_action(
  p_verb text,
  p_why text,
  p_by text,
  p_schedule text default null,
  p_queue text default null,
  p_detail jsonb default null,
  p_job bigint default null
)
returns void
language plpgsql
as $$
begin
  loop
    begin
      insert into {schema}.action (verb, job, schedule, queue, by, why, detail)
      values (
        p_verb, p_job, p_schedule, p_queue,
        coalesce({schema}.one_line(p_by, 200), session_user),
        {schema}.one_line(p_why, 500),
        p_detail
      );
      return;
    exception
      when unique_violation then
        perform {schema}.ids_ensure();
        if not found then
          raise;
        end if;
    end;
  end loop;
end $$;
