-- Read the time up to which the figures are complete.
-- Parameters: none
-- Rows: complete_to timestamptz
-- Locks: none.
-- Keeps: M85, figures say what they do not include yet.
select f.complete_to
from :schema.stat_rollup f
