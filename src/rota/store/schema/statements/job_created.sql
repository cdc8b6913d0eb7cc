-- Read when a job was inserted.
-- Parameters: id int8
-- Rows: created_at timestamptz. None: it is not live.
-- Locks: none; index job_pkey.
-- Keeps: M22, also the time of an enqueue is the database's.
select j.created_at
from :schema.job j
where j.id = :id::int8
