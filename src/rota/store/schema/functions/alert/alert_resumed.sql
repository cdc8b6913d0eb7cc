-- Returns the pauses that ended, and when: by a person within p_period, among the newest 10,000
-- actions, or by their `until`. queue NULL: everything.
create or replace function {schema}.alert_resumed(p_period interval)
returns table (queue text, at timestamptz)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
  select a.queue, a.at
  from (
    select l.*
    from {schema}.action l
    where l.at > {schema}.clock() - p_period
    order by l.at desc
    limit 10000
  ) a
  where a.verb = 'resume'
    and a.job is null
    and a.schedule is null
  union all
  select q.name, q.paused_until
  from {schema}.queue q
  where q.paused_at is not null
    and q.paused_until <= {schema}.clock()
  union all
  select null, i.paused_until
  from {schema}.installation i
  where i.paused_at is not null
    and i.paused_until <= {schema}.clock()
$$;
