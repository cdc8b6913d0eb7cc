-- Read the payload of a job as it is stored, and record who did and why.
-- Parameters: id int8; why text; by text
-- Rows: payload text (NULL: there is no such job)
-- Locks: none; indexes job_pkey and job_history_id.
-- Keeps: M45, M87.
select :schema.job_reveal(:id::int8, :why::text, :by::text)::text as payload
