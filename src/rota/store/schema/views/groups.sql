-- All lanes with jobs that hold a place or wait for one, as groups_find returns them. Where there
-- are many, call that function: it reads one lane, or a page of lanes.
create or replace view {schema}.groups as
select
  l.group_key, l.capacity, l.held, l.holders, l.waiting, l.oldest_due, l.halted_by
from {schema}.groups_find(
  null::text, false, null::text, null::int
) l;
