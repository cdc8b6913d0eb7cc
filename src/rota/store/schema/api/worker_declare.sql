-- Declares a job type, with the defaults of Python's `@app.job(…)`. The last declaration counts.
create or replace function {schema}.worker_declare(
  job_type text,
  {option_arguments},
  lease interval default {schema}.lease_default(),
  retry_after interval[]
    default '{10 s,20 s,40 s,80 s,160 s,320 s,640 s,1280 s,2560 s,1 h}',
  aliases text[] default '{}',
  key_arguments text[] default null,
  group_arguments text[] default null,
  secret_fields text[] default null,
  personal_fields text[] default null,
  release text default 'unknown'
)
returns void
language plpgsql security definer
as $$
#variable_conflict use_variable
declare
  v_wrong text := case
    when coalesce(length(job_type), 0) not between 1 and 200
      then 'job_type must be 1 to 200 characters'
    {option_refusals}
    when lease is null or lease not between interval '1 second' and interval '365 days'
      then 'lease must be from 1 second to 365 days'
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
    when array_position(key_arguments, null) is not null
      then 'key_arguments must be the names of arguments; leave it out if the type has no key'
    when array_position(group_arguments, null) is not null
      then 'group_arguments must be the names of arguments; leave it out if the type has no '
        'group_key'
    when array_position(secret_fields || personal_fields, null) is not null
      then 'secret_fields and personal_fields must be the names of arguments'
    when coalesce(length(release), 0) not between 1 and 200
      then 'release must be 1 to 200 characters'
  end;
begin
  if v_wrong is not null then
    raise exception 'rota.worker_declare: %', v_wrong using errcode = '22023';
  end if;
  perform {schema}.job_type_declare(
    jsonb_build_array(jsonb_build_object(
      {option_pairs},
      'name', job_type,
      'lease', lease,
      'retry_after', retry_after,
      'aliases', aliases,
      'key_arguments', key_arguments,
      'group_arguments', group_arguments,
      'secret_fields', nullif(secret_fields, '{}'),
      'personal_fields', nullif(personal_fields, '{}')
    )),
    release
  );
end $$;
revoke execute on function {schema}.worker_declare from public;
