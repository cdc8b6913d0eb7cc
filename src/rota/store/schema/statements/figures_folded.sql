-- Read the time up to which the figures are complete.
-- Parameters: none
-- Rows: folded_to timestamptz
-- Locks: none.
-- Keeps: M85, figures say what they do not include yet.
select f.folded_to
from :schema.stat_fold f
