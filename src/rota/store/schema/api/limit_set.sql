-- Changes a rate limit, for all workers and at once; what is NULL stays. A burst above the new
-- number of starts becomes that number. The change stands until code declares new figures. If the
-- limit was raised, the first thousand waiting jobs come forward at once; workers bring the rest.
-- Locks: the row of the limit; as limits_replan.
-- Keeps: M87, who and why.
create or replace function {schema}.limit_set(
  p_name text,
  p_starts int default null,
  p_per interval default null,
  p_burst int default null,
  p_why text default null,
  p_by text default null
)
returns void
language plpgsql security definer
as $$
declare
  v_before {schema}.rate_limit := {schema}.limit_known(p_name);
  v_starts int := coalesce(p_starts, v_before.starts);
  v_per interval := coalesce(p_per, v_before.per);
  v_burst int := coalesce(p_burst, least(v_before.burst, v_starts));
  v_wrong text := case
    when v_starts not between 1 and 1000000
      then 'a rate limit has 1 to 1,000,000 starts'
    when v_per not between interval '100 milliseconds' and interval '366 days'
      then 'the time of a rate limit is 100 milliseconds to 366 days'
    when v_burst not between 1 and v_starts
      then format('the burst of a rate limit is 1 to its starts, %s', v_starts)
    when v_burst * (v_per / (v_starts - v_burst + 1)) > interval '36525 days'
      then 'with these figures a burst is free again only after more than a hundred years'
  end;
begin
  if v_wrong is not null then
    raise invalid_parameter_value using message = v_wrong;
  end if;
  update {schema}.rate_limit l
  set
    starts = v_starts,
    per = v_per,
    burst = v_burst,
    changed_at = {schema}.clock(),
    changed_by = coalesce({schema}.one_line(p_by, 200), session_user),
    changed_why = {schema}.one_line(p_why, 500)
  where l.name = p_name;
  perform {schema}.log_action(
    'limit_set'::text, p_why, p_by,
    p_detail => jsonb_build_object(
      'limit', p_name,
      'starts', v_starts,
      'per_s', extract(epoch from v_per),
      'burst', v_burst,
      'before', jsonb_build_object(
        'starts', v_before.starts,
        'per_s', extract(epoch from v_before.per),
        'burst', v_before.burst
      )
    )
  );
  perform {schema}.limits_replan(p_name, 1000, null::text);
end $$;
revoke execute on function {schema}.limit_set(text, int, interval, int, text, text) from public;
