-- Returns the queues, or the types of an unknown_type rule, whose jobs have been due for longer
-- than the period of the rule (for alert_matches): though workers could have taken them
-- (unclaimed), or because no worker knows the type or serves the queue. No worker counts as serving
-- a queue while none takes its jobs whose leases expired before the period.
create or replace function {schema}.alert_waiting(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language sql stable
as $$
  select
    late.subject,
    case
      when p_rule.kind = 'unknown_type' then late.jobs::float8
      else extract(epoch from {schema}.clock() - late.oldest)::float8
    end,
    format(
      case
        when p_rule.kind = 'unclaimed'
          then 'the oldest due job of queue %1$s has been waiting since %2$s, though workers serve '
            'it'
        when p_rule.kind = 'unknown_type'
          then 'no worker seen within %3$s knows type %1$s, and jobs of it have been due since '
            '%2$s: is its module imported?'
        when late.is_lost
          then 'for %3$s no worker has taken jobs of queue %1$s whose leases expired, the first at '
            '%2$s'
        else 'no worker seen within %3$s serves queue %1$s, and jobs in it have been due since %2$s'
      end,
      late.subject, {schema}.utc_text(late.oldest), p_rule.period
    )
  from (
    select
      case when p_rule.kind = 'unknown_type' then d.job_type else d.queue end as subject,
      sum(d.jobs) as jobs,
      min(d.oldest) as oldest,
      bool_and(d.is_lost) as is_lost
    from (
      select f.queue, f.job_type, f.jobs, f.oldest, f.known, f.served, f.tried, false as is_lost
      from {schema}.due_facts(
        {schema}.clock() - p_rule.period, p_rule.period, 1000, p_rule.queue, false
      ) f
      union all
      select r.queue, r.job_type, 1, r.locked_until, true, false, false, true
      from {schema}.running_jobs(1000) r
      where p_rule.kind = 'no_worker'
        and r.locked_until < {schema}.clock() - p_rule.period
        and (p_rule.queue is null or r.queue = p_rule.queue)
    ) d
    where (p_rule.job_type is null or d.job_type = p_rule.job_type)
      and case p_rule.kind
        when 'unclaimed'
          then d.known
            and d.served
            and d.tried
        when 'unknown_type' then not d.known and d.served
        else not d.served
      end
    group by 1
    having sum(d.jobs) >= p_rule.at_least
  ) late
  order by 2 desc
  limit 100
$$;
