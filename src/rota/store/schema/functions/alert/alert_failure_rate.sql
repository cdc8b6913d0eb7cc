-- Returns whether attempts fail more often within the period of a rule than over the day before it
-- (for alert_matches). It reads that day only if enough attempts failed.
create or replace function {schema}.alert_failure_rate(p_rule {schema}.alert_rule)
returns table (subject text, value float8, message text)
language plpgsql stable
as $$
declare
  v_minutes float8 := extract(epoch from p_rule.period) / 60;
  v_count bigint;
  v_types text[];
  v_releases text[];
  v_span float8;
  v_rate float8;
  v_usual float8;
begin
  select
    count(*),
    array_agg(f.job_type),
    array_agg(coalesce(f.release, {schema}.lost_release(f.worker, f.error_type))),
    extract(epoch from {schema}.clock() - min(f.finished_at)) / 60
  into v_count, v_types, v_releases, v_span
  from {schema}.alert_failures({schema}.clock() - p_rule.period, {schema}.clock()) f
  where p_rule.job_type is null
    or f.job_type = p_rule.job_type;
  if v_count < p_rule.at_least then
    return;
  end if;
  if v_count >= 10000 then
    -- More attempts failed than were read.
    v_minutes := least(v_minutes, greatest(v_span, 1.0 / 60));
  end if;
  v_rate := v_count / v_minutes;
  select
    count(*) / greatest(
      60,
      extract(epoch from {schema}.clock() - p_rule.period - min(f.finished_at)) / 60
    )
  into v_usual
  from {schema}.alert_failures(
    {schema}.clock() - p_rule.period - interval '1 day',
    {schema}.clock() - p_rule.period
  ) f
  where p_rule.job_type is null
    or f.job_type = p_rule.job_type;
  if v_rate >= p_rule.factor * coalesce(v_usual, 0) then
    subject := '';
    value := v_rate;
    message := format(
      '%s failures a minute over %s, usually %s: %s%s',
      round(v_rate::numeric, 1), p_rule.period,
      round(coalesce(v_usual, 0)::numeric, 2), {schema}.alert_names(v_types),
      '; ' || {schema}.alert_releases(v_releases)
    );
    return next;
  end if;
end $$;
