-- Returns what a delivery needs of its endpoint, and notes the job that brings it: a requeue has
-- another id. `secrets` is an array of JSON. No row: the endpoint was removed.
-- Locks: the row of the delivery, if it names another job.
create or replace function {schema}.webhook_read(p_id bigint, p_event_id text, p_job bigint)
returns table (
  url text,
  allow_private boolean,
  secrets text,
  paused boolean,
  disabled text,
  is_failing boolean
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  with noted as (
    update {schema}.webhook_delivery d
    set job = p_job
    where d.endpoint = p_id
      and d.event_id = p_event_id
      and d.job <> p_job
  )
  select
    e.url,
    e.allow_private,
    (
      select jsonb_agg(s.one -> 'secret' order by s.place)::text
      from jsonb_array_elements(e.sealed) with ordinality s(one, place)
      where ((s.one ->> 'until')::timestamptz > {schema}.clock()) is not false
    ),
    e.paused_at is not null,
    case
      when e.disabled_at is not null
        then format(
          'since %s by %s: %s', {schema}.utc_text(e.disabled_at), e.by, coalesce(e.why, 'no reason')
        )
    end,
    e.failing_since is not null
  from {schema}.webhook_endpoint e
  where e.id = p_id
$$;
revoke execute on function {schema}.webhook_read(bigint, text, bigint) from public;
