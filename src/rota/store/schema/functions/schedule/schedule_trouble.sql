-- Returns why the runs of a schedule do nothing: nobody has declared its type, or its last three
-- ended runs, among the last ten, are dead and wait for a person. NULL: they do something, or none
-- has ended. A skipped tick is no run.
-- Locks: none; indexes schedule_run_pkey and job_pkey, ten entries; job_history_id, of their days.
-- Keeps: M82, a schedule that fires and achieves nothing is seen.
create or replace function {schema}.schedule_trouble(p_schedule {schema}.schedule)
returns text
language sql stable
set enable_seqscan = off set enable_bitmapscan = off
as $$
  select case
    when not exists (
      select from {schema}.job_type t
      where t.name = p_schedule.job_type
        or p_schedule.job_type = any (t.aliases)
    )
      then format('its type %L is not declared', p_schedule.job_type)
    when (
      select count(*) = 3 and bool_and(ended.is_dead)
      from (
        select j.id is not null as is_dead
        from (
          select r.job
          from {schema}.schedule_run r
          where r.schedule = p_schedule.name
            and (
              select h.error_type
              from {schema}.job_history h
              where h.id = r.job
                and h.finished_at = r.enqueued_at  -- as schedule_skip writes it
            ) is distinct from 'Overlap'
          order by r.job desc
          limit 10
        ) run
        left join {schema}.job j on j.id = run.job
        where j.id is null
          or j.status = 'dead'
        order by run.job desc
        limit 3
      ) ended
    )
      then 'its last 3 runs died'
  end
$$;
