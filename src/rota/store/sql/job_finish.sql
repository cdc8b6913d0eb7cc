-- End a batch of jobs: move them to history.
-- Parameters: ids int8[]; claims int4[]; statuses text[] (succeeded, cancelled; NULL: all succeeded); ran_s float8[] (seconds since the handler began); results text[] (JSON; NULL: none);
--   reasons text[] (NULL: none); release text
-- Rows: id int8. Those whose claim was still held; a missing one is lost.
-- Locks: the rows of the jobs, in id order; index job_pkey. Then the rows of their keys.
-- Keeps: M32, whoever lost a job cannot finish it; M13; M51, a cancelled job frees its key.
select id from rota.job_finish(:ids::int8[], :claims::int4[], :statuses::text[], :ran_s::float8[], :results::text[], :reasons::text[], :release::text) id
