-- Find the finished jobs to run again. Each filter may be NULL, except the statuses and the time.
-- Parameters: statuses text[]; job_type text; queue text; key text; group_key text; payload text;
--   meta text (JSON that they contain); error_type text; error text (as of error_like);
--   release text (that ended it); since timestamptz (when it ended); since_ago interval (instead of
--   since); limit int
-- Rows: id int8. In ascending order.
-- Locks: none; reads the history of the days since then.
-- Keeps: M87.
select h.id
from :schema.job_history h
where h.status = any (:statuses::text[])
  and h.finished_at >= coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval)
  and (:job_type::text is null or h.job_type = :job_type::text)
  and (:queue::text is null or h.queue = :queue::text)
  and (:key::text is null or h.idempotency_key = :key::text)
  and (:group_key::text is null or h.group_key = :group_key::text)
  and (:payload::text is null or h.payload @> :payload::text::jsonb)
  and (:meta::text is null or h.meta @> :meta::text::jsonb)
  and (:error_type::text is null or h.error_type = :error_type::text)
  and (:error::text is null or h.last_error ilike :schema.error_like(:error::text))
  and (:release::text is null or h.release = :release::text)
order by h.id
limit :limit::int
