-- Find the jobs that have been running for longer than an attempt of them may take, those
-- that began first.
-- Parameters: job_type text (NULL: all); queue text (NULL: all); read_max int (most running jobs to
--   read); limit int
-- Rows: id int8; job_type text; queue text; worker text; started_at timestamptz; running_s float8;
--   timeout_s float8
-- Locks: none; index job_lease.
-- Keeps: M85, with a bound on the rows read.
select
  r.id, r.job_type, r.queue, r.worker, r.started_at,
  extract(epoch from :schema.clock() - r.started_at)::float8 as running_s,
  extract(epoch from r.timeout)::float8 as timeout_s
from :schema.running_jobs(:read_max::int) r
where r.started_at < :schema.clock() - r.timeout
  and (:job_type::text is null or r.job_type = :job_type::text)
  and (:queue::text is null or r.queue = :queue::text)
order by r.started_at
limit :limit::int
