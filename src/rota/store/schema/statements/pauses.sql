-- List the pauses in force.
-- Parameters: none
-- Rows: queue text (NULL: everything); paused_at timestamptz; paused_until timestamptz;
--   paused_by text; paused_why text
-- Locks: none; index queue_paused.
-- Keeps: M87, who and why can be seen.
select null::text as queue, i.paused_at, i.paused_until, i.paused_by, i.paused_why
from :schema.installation i
where :schema.is_in_force(i.paused_at, i.paused_until)
union all
(
  select q.name, q.paused_at, q.paused_until, q.paused_by, q.paused_why
  from :schema.queue q
  where :schema.is_in_force(q.paused_at, q.paused_until)
  order by q.name
)
