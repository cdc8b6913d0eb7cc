-- Reserve ids, so that jobs inserted in the order of their keys still have ids in the order of the call.
-- Parameters: count int
-- Rows: id int8. Ascending.
-- Locks: none.
-- Keeps: jobs due at the same time run in the order of the call.
select id from rota.job_reserve(:count::int) id
