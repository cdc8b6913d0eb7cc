-- Takes due rules for 50 s: no other worker gets them meanwhile. Alerts of a disabled rule end.
-- Locks: the rows of the rules, with SKIP LOCKED.
-- Keeps: M86, one of all workers evaluates a rule at a time.
create or replace function {schema}.alert_take()
returns setof text
language plpgsql
as $$
begin
  update {schema}.alert a
  set
    over_at = {schema}.clock(),
    state = 'over',
    notifications = a.notifications + 1,
    posted = a.notifications + 1
  from {schema}.alert_rule r
  where r.name = a.rule
    and not r.enabled
    and a.over_at is null;
  return query
  update {schema}.alert_rule r
  set due_at = {schema}.clock() + interval '50 seconds'
  where r.name = any (array(
    select d.name
    from {schema}.alert_rule d
    where d.enabled
      and (
        d.due_at is null
        or d.due_at <= {schema}.clock()
        or d.due_at > {schema}.clock() + interval '1 day'
      )
    order by d.name
    for update skip locked
  ))
  returning r.name;
end $$;
