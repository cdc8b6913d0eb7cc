-- Pause everything: no claims, no ticks.
-- Parameters: until timestamptz; for_s float8 (seconds from now, instead of until; both NULL: until
--   it is resumed); why text; by text
-- Rows: queue text (always NULL); paused_at timestamptz; paused_until timestamptz; paused_by text;
--   paused_why text
-- Locks: the row of `installation`.
-- Keeps: M87: once it is committed, no claim that begins later takes any job.
select queue, paused_at, paused_until, paused_by, paused_why
from :schema.pause_all(
  coalesce(:until::timestamptz, :schema.clock() + :for_s::float8 * interval '1 second'),
  :why::text,
  :by::text
)
