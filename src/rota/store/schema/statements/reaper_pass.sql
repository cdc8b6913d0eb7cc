-- Take jobs from workers whose leases expired.
-- Parameters: since timestamptz (read the lease index from there on); limit int;
--   steady_s float8 (seconds since this worker's own connection came back; NULL: it was not away);
--   step_s float8 (by how much the server's clock was set; NULL: it was not);
--   moved_s float8 (by how much leases were moved for it before);
--   only int8[] (only these jobs; NULL: all)
-- Rows: started timestamptz; id int8; job_type text; claims int4; attempts int4; worker text;
--   status text; run_at timestamptz; reason text (of a job that had a request to cancel; why the
--   lease of a dead one expired). One row with a NULL id when nothing had expired.
-- Locks: the expired rows, with SKIP LOCKED; index job_lease.
-- Keeps: M31, M33: a lost attempt whose recorded start was alone counts; the lost worker is named.
select
  :schema.clock() as started,
  r.id, r.job_type, r.claims, r.attempts, r.worker, r.status, r.run_at, r.reason
from (select) always
left join :schema.job_reap(
  :since::timestamptz,
  :limit::int,
  :steady_s::float8,
  :step_s::float8,
  :moved_s::float8,
  :only::int8[]
) r on true
