-- Takes the unposted notifications of alerts, for 50 s: no other worker gets them meanwhile.
-- Returns their rows as JSON. Untried notifications come before failed notifications, so that a few
-- that are refused block none.
-- Locks: the rows of the alerts, with SKIP LOCKED.
-- Keeps: M86, one of all workers posts it; a failed post is retried.
create or replace function {schema}.alert_unposted(p_limit int)
returns setof text
language sql
as $$
  update {schema}.alert a
  set post_at = {schema}.clock() + interval '50 seconds'
  where (a.rule, a.subject) in (
    select u.rule, u.subject
    from {schema}.alert u
    where u.posted < u.notifications
      and (
        u.post_at is null
        or u.post_at <= {schema}.clock()
        or u.post_at > {schema}.clock() + interval '1 day'
      )
      and (u.over_at is null or u.over_at > {schema}.clock() - interval '1 day')
    order by u.post_at nulls first, u.last_notified_at
    limit p_limit
    for update skip locked
  )
  returning to_jsonb(a)::text
$$;
