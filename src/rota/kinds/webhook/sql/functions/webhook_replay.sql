-- Enqueues deliveries of an endpoint once more: one event's, whatever its outcome; or up to 1,000
-- that died within p_since and whose job ids are above p_after, up to p_until; NULL: the newest job
-- now. Returns the number enqueued, the last id it looked at, and p_until; no row: no endpoint. An
-- event that is unknown, or whose data is no longer kept, is refused.
-- Locks: the row of the endpoint, so that of two replays the second sees what the first has
--   enqueued; then as job_retry. Indexes job_lane and webhook_delivery_pkey.
-- Keeps: M71, an event is not sent twice by two replays; M87, who and why.
create or replace function {schema}.webhook_replay(
  p_endpoint text,
  p_event_id text default null,
  p_since interval default null,
  p_after bigint default null,
  p_until bigint default null,
  p_why text default null,
  p_by text default null
)
returns table (sent int, last bigint, until bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off
as $$
#variable_conflict use_column
declare
  v_endpoint bigint;
  v_first bigint;
  v_asked bigint[];
  v_is_live boolean;
begin
  until := coalesce(p_until, pg_sequence_last_value('{schema}.job_id_seq'::regclass));
  select e.id into v_endpoint
  from {schema}.webhook_endpoint e
  where e.name = p_endpoint
  for no key update;
  if not found or (p_event_id is null) = (p_since is null) then
    raise exception '%', case
      when v_endpoint is null then format('there is no endpoint %L', p_endpoint)
      else 'replay what: give p_event_id, or p_since'
    end
      using errcode = 'invalid_parameter_value';
  end if;
  if p_event_id is null then
    select
      array_agg(c.id order by c.id) filter (where {schema}.webhook_job(c.job) = c.id),
      max(c.id)
    into v_asked, last
    from (
      select j.id, d.job
      from {schema}.job j
      join {schema}.webhook_delivery d
        on d.endpoint = v_endpoint
        and d.event_id = j.payload ->> 'event_id'
      where j.group_key = 'webhook:' || p_endpoint
        and j.in_lane is not null
        and j.status = 'dead'
        and j.failed_at >= {schema}.clock() - p_since
        and j.payload -> 'endpoint_id' = to_jsonb(v_endpoint)
        and j.id > coalesce(p_after, 0)
        and j.id <= until
      order by j.id
      limit 1000
    ) c;
    if last is null then
      return;
    end if;
    v_is_live := true;
  else
    select d.job into v_first
    from {schema}.webhook_delivery d
    where d.endpoint = v_endpoint
      and d.event_id = p_event_id;
    loop
      last := {schema}.webhook_job(v_first);
      perform from {schema}.job j
      where j.id = last
      for update;
      v_is_live := found;
      -- Not while `rota retry` has just requeued the delivery.
      exit when v_is_live or {schema}.webhook_job(v_first) is not distinct from last;
    end loop;
    v_asked := array[last];
  end if;
  if v_is_live then
    select count(*) filter (where r.answer = 'done') into sent
    from {schema}.job_retry(coalesce(v_asked, '{}'), p_why, p_by, false) r;
  else
    select count(*) filter (where r.answer = 'done') into sent
    from {schema}.job_run_again(v_asked, p_why, p_by) r;
    if sent = 0 then
      raise exception '%', case
        when v_first is null then format('endpoint %s has no event %L', p_endpoint, p_event_id)
        else format(
          'event %s cannot be sent again: its job has left history or was erased, and its data '
          'with it; emit it under another id', p_event_id
        )
      end
        using errcode = 'invalid_parameter_value';
    end if;
  end if;
  return next;
end $$;
revoke execute on function {schema}.webhook_replay(
  text, text, interval, bigint, bigint, text, text
) from public;
