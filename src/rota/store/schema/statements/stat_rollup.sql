-- Say up to when the figures are complete.
-- Parameters: none
-- Rows: complete_to timestamptz
-- Locks: none.
-- Keeps: M85, figures say what they do not yet hold.
select f.complete_to
from :schema.stat_rollup f
