-- Returns the origin under which an effect is kept: a step under the origin of its job, so that a
-- requeued job finds it; any other effect under 0, for all jobs.
create or replace function {schema}.effect_origin(p_job {schema}.job, p_is_step boolean)
returns bigint
language sql immutable
as $$
  select case when p_is_step then coalesce(p_job.origin_id, p_job.id) else 0 end
$$;
