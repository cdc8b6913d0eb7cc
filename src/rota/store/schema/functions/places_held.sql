-- Returns the lane and the caps of a job that was read before it ended, as places_free takes them
-- (for the functions that end one job).
create or replace function {schema}.places_held(p_job {schema}.job)
returns table (lanes text[], caps text[])
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    case when p_job.group_key is not null then array[p_job.group_key] end,
    case
      when p_job.capped
        then array['type ' || {schema}.canonical_type(p_job.job_type), 'queue ' || p_job.queue]
    end
$$;
