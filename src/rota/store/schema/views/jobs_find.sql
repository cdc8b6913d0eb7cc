-- Finds jobs, newest (by id) first. A NULL filter matches any job. A finished job is found by when
-- it ended, since p_since (by default a day before p_until); a dead job by when it died, if p_since
-- or p_until is given; a job that has not ended belongs to now. p_payload and p_meta match what
-- contains them. p_error_type and p_error (as of error_like, case-insensitive) match an attempt
-- that failed in that time, or the last error of a job that has not ended. A search by key or by
-- p_ids ignores time; by p_batch it goes back to when the batch was made. p_waiting finds only jobs
-- that something holds back besides their run_at.
-- The query is built from the given filters: each search gets its own plan, which leaves out days
-- that do not count and knows the values.
create or replace function {schema}.jobs_find(
  p_ids bigint[],
  p_status text,
  p_job_type text,
  p_queue text,
  p_key text,
  p_group_key text,
  p_batch bigint,
  p_error_type text,
  p_error text,
  p_since timestamptz,
  p_until timestamptz,
  p_before bigint,
  p_limit int,
  p_payload jsonb,
  p_meta jsonb,
  p_waiting boolean
)
returns setof {schema}.jobs
language plpgsql stable
set jit = off set max_parallel_workers_per_gather = 0 set standard_conforming_strings = on
as $$
declare
  v_since timestamptz := coalesce(
    p_since,
    case when p_batch is not null then
      (select max(r.made_at) from {schema}.batch_ranges(p_batch) r)
    end,
    coalesce(p_until, {schema}.clock()) - interval '1 day'
  );
  v_jobs text := case
    when p_batch is null then '{schema}.jobs v where '
    else '{schema}.batch_ranges($13) r join {schema}.jobs v '
      || 'on v.id between r.first_id and r.last_id where '
  end;
  v_has_error boolean := p_error_type is not null or p_error is not null;
  v_like text := {schema}.error_like(p_error);
  v_same text := concat(
    case when p_status is not null then ' and v.status = $2' end,
    case when p_job_type is not null then ' and v.job_type = $3' end,
    case when p_queue is not null then ' and v.queue = $4' end,
    case when p_key is not null then ' and v.idempotency_key = $5' end,
    case when p_group_key is not null then ' and v.group_key = $12' end,
    case when p_batch is not null then ' and v.batch = $13' end,
    case when p_payload is not null then ' and v.payload @> $14' end,
    case when p_meta is not null then ' and v.meta @> $15' end,
    case when p_before is not null then ' and v.id < $10' end,
    case when p_waiting then ' and v.waits_for is not null' end
  );
  v_last text := ' order by v.id desc limit $11)';
  v_parts text[] := '{}';
begin
  if p_ids is not null then
    v_parts := array['(select v.* from {schema}.jobs v where v.id = any ($1)' || v_same || v_last];
  else
    if p_status is null or p_status not in ('succeeded', 'cancelled') then
      v_parts := v_parts || concat(
        '(select v.* from ', v_jobs, 'v.finished_at is null', v_same,
        case
          when p_group_key is not null
            then ' and v.id = any (array(select {schema}.lane_jobs($12)))'
        end,
        case when p_error_type is not null then ' and v.error_type = $6' end,
        case when p_error is not null then ' and v.last_error ilike $7' end,
        case when p_until <= {schema}.clock() then ' and v.status = ''dead''' end,
        case
          when p_status = 'dead' and p_since is not null then ' and v.failed_at >= $8'
          when p_since is not null then ' and (v.status <> ''dead'' or v.failed_at >= $8)'
        end,
        case
          when p_until is not null then ' and (v.status <> ''dead'' or v.failed_at < $9)'
        end,
        v_last
      );
    end if;
    if v_has_error then
      v_parts := v_parts || concat(
        '(select v.* from (select a.job, min(a.finished_at) as failed_at '
          || 'from {schema}.attempt a where a.finished_at >= $8',
        case when p_until is not null then ' and a.finished_at < $9' end,
        case when p_error_type is not null then ' and a.error_type = $6' end,
        case when p_error is not null then ' and a.message ilike $7' end,
        case when p_job_type is not null then ' and a.job_type = $3' end,
        case when p_before is not null then ' and a.job < $10' end,
        ' group by a.job order by a.job desc) a cross join lateral ('
          || 'select v.* from {schema}.jobs v where v.id = a.job and v.finished_at is null', v_same,
        ' union all '
          || 'select v.* from {schema}.jobs v '
          || 'where v.id = a.job and v.finished_at >= a.failed_at', v_same,
        case when p_status = 'dead' then ' and v.resolution is null' end,
        ' limit 1) v order by a.job desc limit $11)'
      );
    elsif p_status is null or p_status in ('succeeded', 'cancelled') then
      v_parts := v_parts || concat(
        '(select v.* from ', v_jobs, 'v.finished_at >= $8',
        case when p_until is not null then ' and v.finished_at < $9' end,
        v_same,
        v_last
      );
    end if;
    if p_key is not null and not v_has_error then
      v_parts := v_parts || concat(
        '(select v.* from {schema}.jobs v '
          || 'where v.id = any (array(select {schema}.key_jobs($3, $5)))', v_same,
        case when p_status = 'dead' then ' and v.resolution is null' end,
        v_last
      );
    end if;
  end if;
  return query execute format(
    'select distinct on (v.id) v.* from (%s) v order by v.id desc limit $11',
    array_to_string(v_parts, ' union all ')
  )
  using
    p_ids, p_status, p_job_type, p_queue, p_key,
    p_error_type, v_like, v_since, p_until, p_before, p_limit,
    p_group_key, p_batch, p_payload, p_meta;
end $$;
