-- Make this worker the reader of the gauges for 90 seconds, or keep it so; another worker takes
-- over earlier if the reader is not alive.
-- Parameters: worker text
-- Rows: metrics_worker text. None: another worker reads them.
-- Locks: the one row of installation, if this worker takes it.
-- Keeps: M85, the gauges cost one read, however many workers are scraped.
update :schema.installation i
set
  metrics_worker = :worker::text,
  metrics_until = :schema.clock() + interval '90 seconds'
where i.metrics_worker is null
  or i.metrics_worker = :worker::text
  or i.metrics_until < :schema.clock()
  or i.metrics_until > :schema.clock() + interval '90 seconds'
  or not exists (
    select from :schema.worker w
    where w.name = i.metrics_worker
      and :schema.is_alive(w.heartbeat_at, w.stopped_at)
  )
returning i.metrics_worker
