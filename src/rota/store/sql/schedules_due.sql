-- Read the schedules to plan, and when the next tick of the others is.
-- Parameters: after timestamptz (read the index of ticks from there on); limit int
-- Rows: now timestamptz; paused bool (everything is); next_in_s float8; name text; cron text; timezone text; catch_up text; jitter_s float8; next_run_at timestamptz;
--   since timestamptz; unfit text (why its job cannot be). One row with a NULL name when nothing is due.
-- Locks: none; indexes schedule_next and schedule_unplanned.
-- Keeps: M22, the database's clock decides; an idle fleet asks for next to nothing.
select d.now, d.paused, d.next_in_s, d.name, d.cron, d.timezone, d.catch_up, d.jitter_s, d.next_run_at, d.since, d.unfit
from rota.schedules_due(:after::timestamptz, :limit::int) d
