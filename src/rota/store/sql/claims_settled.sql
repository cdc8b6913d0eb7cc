-- Say which claims this worker has settled already: asked when the answer to a write was lost with the connection.
-- Parameters: ids int8[]; claims int4[]; worker text
-- Rows: id int8; status text; run_at timestamptz
-- Locks: none; indexes job_history_id and attempt_job.
-- Keeps: an outcome that was committed is not reported as lost.
select c.id, h.status, null::timestamptz as run_at
from unnest(:ids::int8[], :claims::int4[]) c(id, claim) join rota.job_history h on h.id = c.id and h.claims = c.claim and h.locked_by = :worker::text
union all
select c.id, a.outcome, a.next_run_at
from unnest(:ids::int8[], :claims::int4[]) c(id, claim) join rota.attempt a on a.job = c.id and a.claim = c.claim
where a.worker = :worker::text and a.release is not null
