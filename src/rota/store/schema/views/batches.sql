-- Batches and the counts of their members up to now. outcome: succeeded, or failed, once all have
-- ended; NULL while a member, also a requeued member, has not.
create or replace view {schema}.batches as
select
  b.id, b.parent,
  n.total, n.succeeded, n.dead, n.cancelled,
  b.on_failure,
  case
    when n.succeeded + n.dead + n.cancelled < n.total then null
    when n.succeeded = n.total then 'succeeded'
    else 'failed'
  end as outcome,
  b.created_at, b.ended_at, b.then_at, b.then_job, b.then_error
from {schema}.batch b
cross join lateral (
  select
    (b.total + coalesce(sum(d.total), 0))::int as total,
    (b.succeeded + coalesce(sum(d.succeeded), 0))::int as succeeded,
    (b.dead + coalesce(sum(d.dead), 0))::int as dead,
    (b.cancelled + coalesce(sum(d.cancelled), 0))::int as cancelled
  from {schema}.batch_delta d
  where d.batch = b.id
) n;
