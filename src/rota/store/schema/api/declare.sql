-- Declares a job type, as Python's `@app.job(…)` does. The last declaration of a name is in force.
-- It has the same defaults as Python.
create or replace function {schema}.declare(
  job_type text,
  queue text default 'default',
  priority int default 0,
  max_attempts int default 10,
  lease interval default {schema}.lease_default(),
  retry_after interval[]
    default '{10 s,20 s,40 s,80 s,160 s,320 s,640 s,1280 s,2560 s,1 h}',
  expires interval default null,
  key_ttl interval default '90 days',
  history text default 'all',
  on_lost text default 'retry',
  timeout interval default '5 minutes',
  aliases text[] default '{}',
  version int default null,
  release text default 'unknown',
  on_expired text default 'dead',
  key_arguments text[] default null,
  on_duplicate text default 'join',
  key_scope text default 'ttl',
  group_arguments text[] default null,
  lane_capacity int default 1,
  on_retry text default 'hold',
  on_dead text default 'free',
  concurrency int default null
)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  v_wrong text := case
    when coalesce(length(job_type), 0) not between 1 and 200
      then 'job_type must be 1 to 200 characters'
    when coalesce(length(queue), 0) not between 1 and 100
      then 'queue must be 1 to 100 characters'
    when priority is null or priority not between -100 and 100
      then 'priority must be from -100 to 100'
    when max_attempts is null or max_attempts not between 1 and 10000
      then 'max_attempts must be from 1 to 10000'
    when lease is null or lease not between interval '1 second' and interval '365 days'
      then 'lease must be from 1 second to 365 days'
    when timeout is null
      or timeout not between interval '1 millisecond' and interval '36525 days'
      then 'timeout must be from 1 ms to a hundred years'
    when expires not between interval '1 millisecond' and interval '36525 days'
      then 'expires must be from 1 ms to a hundred years'
    when key_ttl is null or key_ttl not between interval '0' and interval '36525 days'
      then 'key_ttl must be from 0 to a hundred years'
    when coalesce(history, '') not in ('all', 'failures')
      then 'history must be all or failures'
    when coalesce(on_lost, '') not in ('retry', 'dead')
      then 'on_lost must be retry or dead'
    when coalesce(on_expired, '') not in ('dead', 'drop')
      then 'on_expired must be dead or drop'
    when coalesce(cardinality(retry_after), 0) not between 1 and 100
      then 'retry_after must be 1 to 100 intervals; the last one repeats'
    when exists (
      select from unnest(retry_after) one(wait)
      where wait is null
        or wait not between interval '1 second' and interval '365 days'
    )
      then 'each of retry_after must be from 1 second to 365 days'
    when aliases is null
      or exists (
        select from unnest(aliases) one(name)
        where coalesce(length(name), 0) not between 1 and 200
          or name = job_type
      )
      then 'aliases must be other names of 1 to 200 characters'
    when version not between 1 and 32767
      then 'version must be from 1 to 32767'
    when array_position(key_arguments, null) is not null
      then 'key_arguments must be the names of arguments; leave it out if the type has no key'
    when coalesce(on_duplicate, '') not in ('join', 'replace', 'postpone', 'raise')
      then 'on_duplicate must be join, replace, postpone or raise'
    when coalesce(key_scope, '') not in ('ttl', 'pending')
      then 'key_scope must be ttl or pending'
    when array_position(group_arguments, null) is not null
      then 'group_arguments must be the names of arguments; leave it out if the type has no '
        'group_key'
    when lane_capacity is null or lane_capacity not between 1 and 1000
      then 'lane_capacity must be from 1 to 1000'
    when coalesce(on_retry, '') not in ('hold', 'release')
      then 'on_retry must be hold or release'
    when coalesce(on_dead, '') not in ('free', 'halt')
      then 'on_dead must be free or halt'
    when concurrency not between 1 and 100000
      then 'concurrency must be from 1 to 100000; leave it out for no limit'
    when coalesce(length(release), 0) not between 1 and 200
      then 'release must be 1 to 200 characters'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.declare: %', v_wrong using errcode = '22023';
  end if;
  perform {schema}.job_type_declare(
    jsonb_build_array(jsonb_build_object(
      'name', job_type,
      'aliases', aliases,
      'queue', queue,
      'priority', priority,
      'max_attempts', max_attempts,
      'timeout', timeout,
      'lease', lease,
      'expires', expires,
      'key_ttl', key_ttl,
      'key_arguments', key_arguments,
      'on_duplicate', on_duplicate,
      'key_scope', key_scope,
      'group_arguments', group_arguments,
      'lane_capacity', lane_capacity,
      'on_retry', on_retry,
      'on_dead', on_dead,
      'concurrency', concurrency,
      'history', history,
      'on_lost', on_lost,
      'on_expired', on_expired,
      'version', version,
      'retry_after', retry_after
    )),
    release
  );
end $$;
revoke execute on function {schema}.declare(
  text, text, int, int, interval, interval[], interval, interval,
  text, text, interval, text[], int, text, text, text[], text, text,
  text[], int, text, text, int
) from public;
