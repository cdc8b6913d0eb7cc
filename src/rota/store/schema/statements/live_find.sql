-- Find the live jobs that a person wants to act on. Each filter may be NULL, except the statuses.
-- Parameters: statuses text[]; job_type text; queue text; key text; group_key text; payload text;
--   meta text (JSON that they contain); error_type text; error text (as of error_like);
--   release text (of the last attempt); since timestamptz (when it failed, else when it was made);
--   since_ago interval (instead of since); limit int
-- Rows: id int8. In ascending order.
-- Locks: none; reads the live jobs once, in the order of job_pkey.
-- Keeps: M87.
select j.id
from :schema.job j
where j.status = any (:statuses::text[])
  and coalesce(j.failed_at, j.created_at)
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
        and a.finished_at <= :schema.clock()
      order by a.finished_at desc
      limit 1
    ) = :release::text
  )
order by j.id
limit :limit::int
