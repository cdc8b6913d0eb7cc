-- Renew leases.
-- Parameters: ids int8[]; claims int4[]; types text[]; leases interval[] (one per type)
-- Rows: id int8; renewed bool (false: somebody has the row locked); cancel_requested bool; cancel_reason text. Those still held; a missing one is lost.
-- Locks: the rows of the jobs, in id order, with SKIP LOCKED; index job_pkey.
-- Keeps: M32, only the worker that still holds a job extends its lease.
select id, renewed, cancel_requested, cancel_reason from rota.job_renew(:ids::int8[], :claims::int4[], :types::text[], :leases::interval[])
