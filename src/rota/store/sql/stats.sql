-- Count the live jobs by status, each up to a limit.
-- Parameters: limit int
-- Rows: status text; jobs int8. Live statuses only; a count that reaches the limit means "at least".
-- Locks: none.
-- Keeps: M85, with a bound on the rows read.
select s.status, (select count(*) from (select from rota.job j where j.status = s.status limit :limit::int) counted) as jobs
from (values ('queued'), ('waiting'), ('running'), ('failed'), ('dead')) s(status)
