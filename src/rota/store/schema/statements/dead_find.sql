-- Find the dead jobs that a person wants to act on. Every filter is optional (NULL).
-- Parameters: job_type text; queue text; key text; group_key text; payload text; meta text
--   (JSON that they contain); error_type text; error text (as of error_like); release text (of
--   the last attempt); since timestamptz (when it died); since_ago interval (instead of since);
--   limit int
-- Rows: id int8. In ascending order.
-- Locks: none; index job_dead, and attempt_job of the days that the job lived.
-- Keeps: M44, by type, error, release and time.
select j.id
from :schema.job j
where j.status = 'dead'
  and j.failed_at
    >= coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval, '-infinity')
  and (:job_type::text is null or j.job_type = :job_type::text)
  and (:queue::text is null or j.queue = :queue::text)
  and (:key::text is null or j.idempotency_key = :key::text)
  and (:group_key::text is null or j.group_key = :group_key::text)
  and (:payload::text is null or j.payload @> :payload::text::jsonb)
  and (:meta::text is null or j.meta @> :meta::text::jsonb)
  and (:error_type::text is null or j.error_type = :error_type::text)
  and (:error::text is null or j.last_error ilike :schema.error_like(:error::text))
  and (
    :release::text is null
    or (
      select a.release
      from :schema.attempt a
      where a.job = j.id
        and a.finished_at >= j.created_at
        and a.finished_at <= j.failed_at
      order by a.finished_at desc
      limit 1
    ) = :release::text
  )
order by j.id
limit :limit::int
