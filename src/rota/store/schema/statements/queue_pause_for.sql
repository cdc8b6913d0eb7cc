-- Pause a queue.
-- Parameters: queue text; until timestamptz; for_s float8 (seconds from now, instead of until; both
--   NULL: until it is resumed); why text; by text; force boolean (even if nobody knows the queue)
-- Rows: queue text; paused_at timestamptz; paused_until timestamptz; paused_by text;
--   paused_why text
-- Locks: the row of the queue.
-- Keeps: M87: once it is committed, no claim that begins later takes a job of the queue.
select queue, paused_at, paused_until, paused_by, paused_why
from :schema.queue_pause(
  :queue::text,
  coalesce(:until::timestamptz, :schema.clock() + :for_s::float8 * interval '1 second'),
  :why::text,
  :by::text,
  :force::boolean
)
