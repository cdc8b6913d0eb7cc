-- Requeue dead jobs as new ones, one of them with a corrected payload.
-- Parameters: ids int8[]; why text; by text; payload text (JSON object; NULL: as it was); payload_version int (of the corrected payload; NULL: the type's)
-- Rows: id int8; answer text (done, refused, not found); status text; new_id int8
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M44, the old one keeps its content and says what became of it; M51, the key moves along.
select id, answer, status, new_id from rota.job_requeue(:ids::int8[], :why::text, :by::text, :payload::text::jsonb, :payload_version::int::int2)
