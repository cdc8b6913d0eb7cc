-- List lanes with jobs that hold a place or wait for a place, by group key.
-- Parameters: group_key text (NULL: all); halted boolean (only lanes that a dead job halts);
--   after text (only later ones; NULL: from the first); limit int
-- Rows: group_key text; capacity int2; held int4; holders text (JSON: id, job_type, status, since);
--   waiting int4; oldest_due timestamptz; halted_by int8
-- Locks: none; as groups_find.
-- Keeps: M60, what holds a lane is visible.
select
  l.group_key, l.capacity, l.held, l.holders::text, l.waiting, l.oldest_due, l.halted_by
from :schema.groups_find(
  :group_key::text, :halted::boolean, :after::text, :limit::int
) l
