-- Find the finished jobs that a person wants to run again. Every filter but the statuses and the
-- time is optional (NULL).
-- Parameters: statuses text[]; job_type text; queue text; error_type text; release text (that ended
--   it); since timestamptz (when it ended); since_ago interval (instead of since); limit int
-- Rows: id int8. In ascending order.
-- Locks: none; reads the history of the days since then.
-- Keeps: M87.
select h.id
from :schema.job_history h
where h.status = any (:statuses::text[])
  and h.finished_at >= coalesce(:since::timestamptz, :schema.clock() - :since_ago::interval)
  and (:job_type::text is null or h.job_type = :job_type::text)
  and (:queue::text is null or h.queue = :queue::text)
  and (:error_type::text is null or h.error_type = :error_type::text)
  and (:release::text is null or h.release = :release::text)
order by h.id
limit :limit::int
