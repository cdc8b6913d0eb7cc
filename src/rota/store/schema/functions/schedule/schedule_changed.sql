-- Applies the consequences of a change, whatever client made it. After a new cron text or time
-- zone, or the end of a person's pause or of being disabled, ticks count from now on. A schedule
-- that Rota paused is tried again, and its ticks since then count as missed.
create or replace function {schema}.schedule_changed()
returns trigger
language plpgsql
as $$
begin
  if (
    {new.scheduled},
    new.origin, new.expires, new.cron, new.timezone, new.catch_up, new.overlap, new.jitter,
    new.paused_at, new.disabled_at
  ) is not distinct from (
    {old.scheduled},
    old.origin, old.expires, old.cron, old.timezone, old.catch_up, old.overlap, old.jitter,
    old.paused_at, old.disabled_at
  ) then
    return new;  -- neither the definition nor a pause changed: this is a tick
  end if;
  new.updated_at := {schema}.clock();
  if new.refused and old.refused and new.paused_by is distinct from old.paused_by then
    new.refused := false;  -- a person has taken the pause over
  end if;
  if new.refused and old.refused and new.paused_at = old.paused_at then
    new.paused_at := null;  -- the definition has changed
  end if;
  if new.paused_at is null then
    new.paused_by := null;
    new.paused_why := null;
    new.refused := false;
  elsif old.paused_at is null then
    new.paused_by := coalesce(new.paused_by, session_user);
  end if;
  if (new.cron, new.timezone) is distinct from (old.cron, old.timezone)
    or old.paused_at is not null and new.paused_at is null and not old.refused
    or old.disabled_at is not null and new.disabled_at is null
  then
    new.since := {schema}.clock();
    if new.next_run_at is not distinct from old.next_run_at then
      new.next_run_at := null;
    end if;
  end if;
  return new;
end $$;
