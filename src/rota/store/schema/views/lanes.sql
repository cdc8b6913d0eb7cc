-- All lanes with jobs that hold a place or wait for one, as lanes_find returns them. Where there
-- are many, call that function: it reads one lane, or a page of them.
create or replace view {schema}.lanes as
select
  l.group_key, l.capacity, l.held, l.holders, l.waiting, l.oldest_due, l.halted_by
from {schema}.lanes_find(
  null::text, false, null::text, null::int
) l;
