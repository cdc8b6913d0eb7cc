-- Read the audit log, the newest action first.
-- Parameters: since timestamptz; since_ago interval (the same, back from now); until timestamptz
--   (before it); verb text (NULL: any); by text (NULL: any); job int8 (NULL: any); limit int
-- Rows: at timestamptz; verb text; job int8; queue text; by text; why text; detail text;
--   schedule text
-- Locks: none; indexes action_at and action_job.
-- Keeps: M87, who and why.
select a.at, a.verb, a.job, a.queue, a.by, a.why, a.detail::text as detail, a.schedule
from :schema.action a
where a.at >= coalesce(
  :since::timestamptz, :schema.clock() - :since_ago::interval, '-infinity'
)
  and a.at < coalesce(:until::timestamptz, 'infinity')
  and (:verb::text is null or a.verb = :verb::text)
  and (:by::text is null or a.by = :by::text)
  and (:job::int8 is null or a.job = :job::int8)
order by a.at desc, a.id desc
limit :limit::int
