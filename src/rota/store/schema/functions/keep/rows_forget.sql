-- Deletes up to p_limit rows of a kind that were kept long enough. Returns how many.
--
-- A row is old if its `since` lies `keep` or longer in the past, and `also` holds; without `keep`
-- none is. `with_it` deletes what belongs to the deleted rows. An indexed kind is read from its
-- oldest row on; the rest are small, or read whole once an hour.
-- Locks: rows, SKIP LOCKED; indexes action_at, batch_ended, batch_part_pkey, effect_done,
--   effect_intended, idempotency_expires, job_pkey, schedule_run_enqueued and stat_hour_pkey.
-- Keeps: M13, no table grows for ever; M51, a key is held until it expires; M52, what a job may
--   still ask is kept: the effects of live and of dead jobs.
create or replace function {schema}.rows_forget(p_what text, p_limit int)
returns int
language plpgsql
set enable_seqscan = on set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  v_keep jsonb := (select jsonb_object_agg(r.what, r.keep) from {schema}.retention r);
  v_unasked constant text := 'not exists '
    '(select from {schema}.job j where j.id in (t.job, t.origin_id))';
  v_kind record;
  v_count int;
begin
  select * into v_kind
  from (values
    ('keys', 'idempotency', 't.expires_at', '0', true, 'true', ''),
    ('workers', 'worker', '{schema}.last_seen(t.heartbeat_at, t.stopped_at)', '1 day', false,
      'true', ''),
    ('actions', 'action', 't.at', v_keep ->> 'actions', true, 'true', ''),
    ('runs', 'schedule_run', 't.enqueued_at', v_keep ->> 'history', true, 'true', ''),
    ('figures', 'stat_hour', 't.hour', v_keep ->> 'figures', true, 'true', ''),
    ('alerts', 'alert', 't.over_at', '30 days', false, 'true', ''),
    ('effects', 'effect', 't.done_at', v_keep ->> 'effects', true, v_unasked, ''),
    ('effects not done', 'effect', 't.intended_at', v_keep ->> 'effects', true,
      't.done_at is null and ' || v_unasked, ''),
    -- A closed breaker whose failures count no longer, and any that no job has tried for a day.
    ('breakers', 'breaker',
      $b$case t.state when 'closed' then coalesce(t.forget_at, '-infinity') - interval '1 day'
        when 'open' then t.open_until else t.changed_at end$b$,
      '1 day', false, 'not {schema}.claim_is_live(t.trial_job, t.trial_claim)', ''),
    -- Members that are dead may be requeued for as long as dead jobs are kept.
    ('batches', 'batch', 't.ended_at', v_keep ->> 'history', true,
      format('(t.dead = 0 or t.ended_at < {schema}.clock() - %L::interval)', v_keep ->> 'dead'),
      ', part as (delete from {schema}.batch_part p using gone g where p.batch = g.id)'),
    -- A key whose starts lie in the past is as free as an unknown key.
    ('limits', 'rate_limit_key',
      'greatest(t.tat, t.held_to, t.estimated_to, t.again_to, t.urgent_to)',
      '1 day', false, 'true', '')
  ) k(what, source, since, keep, is_indexed, also, with_it)
  where k.what = p_what;
  if not found then
    raise exception 'rota.rows_forget: there is no kind of rows %', p_what using errcode = '22023';
  end if;
  perform set_config('enable_seqscan', case when v_kind.is_indexed then 'off' else 'on' end, true);
  execute format(
    'with old as materialized ('
      'select t.ctid as place '
      'from {schema}.%1$I t '
      'where %2$s < {schema}.clock() - $1 and %3$s '
      '%4$s '
      'limit $2 '
      'for update skip locked'
    '), '
    'gone as (delete from {schema}.%1$I t using old o where t.ctid = o.place returning t.*)'
    '%5$s '
    'select count(*) from gone',
    v_kind.source, v_kind.since, v_kind.also,
    case when v_kind.is_indexed then 'order by ' || v_kind.since end,
    v_kind.with_it
  ) into v_count using v_kind.keep::interval, p_limit;
  return v_count;
end $$;
