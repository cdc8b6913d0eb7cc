-- List the workers of the last hour.
-- Parameters: none
-- Rows: name text; host text; pid int4; version text; release text; job_types text[]; queues text; running int4; started_at timestamptz;
--   heartbeat_at timestamptz; stopped_at timestamptz
-- Locks: none.
-- Keeps: M86, no live worker can be seen.
select name, host, pid, version, release, job_types, queues::text, running, started_at, heartbeat_at, stopped_at
from rota.worker where coalesce(stopped_at, heartbeat_at) > rota.clock() - interval '1 hour' order by started_at
