-- Refuses rows that job_refusal refuses: at an INSERT once for the statement, if a row is not
-- plain; at an UPDATE of a column that people change, for each row. SECURITY DEFINER, as job_fill.
-- At an INSERT it also refuses:
--   an id that the sequence has not given: it would block the producer that will get it, and below
--     1 Python cannot name it
--   the id of a job that is gone, whose steps, effects and claims are its own
--   a run of a schedule that would never start, because every tick would be skipped
--   what key_refusal or secret_refusal refuses, asked only if a type declares keys or secrets
-- At an UPDATE it also refuses a job that runs without a claim.
-- After an INSERT it wakes as many workers as there are due jobs, or jobs due before a worker looks
-- again, and only workers that wait for their queue: a commit with a NOTIFY holds a database-wide
-- lock until it is flushed.
-- Keeps: M15, no producer can stop another, a reader or a schedule.
create or replace function {schema}.job_check()
returns trigger
language plpgsql security definer
as $$
declare
  v_refusal text;
  v_last_id bigint;
  v_are_plain boolean;
  v_has_keys boolean;
  v_is_awaited boolean;
  v_has_rules boolean;
begin
  if tg_op = 'INSERT' then
    select
      bool_and({schema}.job_row_is_plain(row(f.*)::{schema}.job)) is not false
        and (
          min(f.id) >= 1
          and max(f.id) <= coalesce(pg_sequence_last_value('{schema}.job_id_seq'), 0)
        ) is not false,
      bool_or(f.idempotency_key is not null),
      exists (select from {schema}.queue q where q.notify_until > {schema}.clock()),
      exists (
        select from {schema}.job_type t
        where t.key_arguments is not null
          or t.group_arguments is not null
          or t.asks is not null
          or t.secret_fields is not null
      )
    into v_are_plain, v_has_keys, v_is_awaited, v_has_rules
    from fresh f;
    if not v_are_plain then
      v_last_id := coalesce(pg_sequence_last_value('{schema}.job_id_seq'), 0);
      select min(coalesce(
        {schema}.job_refusal(row(f.*)::{schema}.job),
        case
          when f.id not between 1 and v_last_id
            then format('id %s is not one that the sequence gave; leave it out', f.id)
          when f.schedule is not null
            and (f.status <> 'queued' or f.run_at > {schema}.clock() + interval '2 days')
            then 'schedule is given, so the job must be queued and due within two days'
        end
      ))
      into v_refusal
      from fresh f;
    end if;
    if v_has_rules and v_refusal is null then
      -- Asked without a call: where a type declares a key, every INSERT comes here.
      if exists (
        select from {schema}.job_type t
        join fresh f on f.job_type = t.name or f.job_type = any (t.aliases)
        where t.key_arguments is not null and f.idempotency_key is null
          or t.group_arguments is not null and f.group_key is null
          or f.schedule is null and {schema}.asks_lacking(t.asks, f.meta) is not null
      )
      then
        select min({schema}.key_refusal(
          f.job_type,
          f.idempotency_key is null and f.schedule is null,
          f.group_key is null,
          case
            when f.schedule is null and f.meta ?| array['rota.batch', 'rota.alert'] is not true
              then coalesce(f.meta, '{}')
          end
        ))
        into v_refusal
        from fresh f
        where not exists (select from {schema}.keyless k where k.job = f.id);
      end if;
      if v_refusal is null then
        select min({schema}.secret_refusal(f.job_type, f.payload)) into v_refusal
        from {schema}.job_type t
        join fresh f on f.job_type = t.name or f.job_type = any (t.aliases)
        where t.secret_fields is not null;
      end if;
    end if;
    if v_has_keys and v_refusal is null then
      if exists (
        select from fresh f
        where f.idempotency_key is not null
          and f.id is distinct from (
            select i.job
            from {schema}.idempotency i
            where i.job_type = f.job_type
              and i.key = f.idempotency_key
          )
      )
      then
        -- By its other name, and as the row is now: a trigger may have cancelled the job.
        select
          'idempotency_key is not held by the job: a trigger of yours that changes it must run '
          'before job_insert_fill, and the setting keys_taken is none of yours'
        into v_refusal
        from fresh f
        join {schema}.job j on j.id = f.id
        where j.idempotency_key is not null
          and not exists (
            select from {schema}.idempotency i
            where i.job_type = {schema}.canonical_type(j.job_type)
              and i.key = j.idempotency_key
              and i.job = j.id
          )
        limit 1;
      end if;
    end if;
    if v_refusal is null
      and not pg_has_role({schema}.caller(), current_user, 'MEMBER')
      and has_column_privilege({schema}.caller(), '{schema}.job', 'id', 'INSERT')
    then
      if {schema}.ids_used(array(select f.id from fresh f)) is not null then
        v_refusal := 'id is that of another job; leave it out';
      end if;
    end if;
    if v_is_awaited and v_refusal is null then
      perform {schema}.wake_up(array_agg(distinct f.queue), count(*)::int)
      from fresh f
      where f.status = 'queued'
        and f.run_at <= {schema}.clock() + interval '5 seconds';
    end if;
  else
    v_refusal := coalesce(
      {schema}.job_refusal(new), {schema}.secret_refusal(new.job_type, new.payload)
    );
    -- What was so before is not refused now, such as a payload over a lowered limit.
    if v_refusal is not null
      and v_refusal = coalesce(
        {schema}.job_refusal(old), {schema}.secret_refusal(old.job_type, old.payload)
      )
    then
      return null;
    end if;
    if v_refusal is null
      and new.status = 'running'
      and old.status <> 'running'
      and new.claims = old.claims
    then
      v_refusal := 'status is set to running without a claim, so nothing would keep a late worker '
        'from writing: call {schema}.claim, which gives a lease and a number to finish with';
    end if;
  end if;
  if v_refusal is not null then
    perform {schema}.job_refuse(v_refusal);
  end if;
  return null;
end $$;
