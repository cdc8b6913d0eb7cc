-- Pause a schedule that cannot be planned or enqueued as it is.
-- Parameters: name text; next_run_at timestamptz (as it was read); since timestamptz (as it was read); why text
-- Rows: refused bool
-- Locks: the row of the schedule.
-- Keeps: one bad row keeps none of the others from being planned, and says what is the matter.
select rota.schedule_refuse(:name::text, :next_run_at::timestamptz, :since::timestamptz, :why::text) as refused
