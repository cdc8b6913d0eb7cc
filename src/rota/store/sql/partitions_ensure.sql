-- Make the daily partitions of history and attempts that are missing.
-- Parameters: days int (ahead of today)
-- Rows: made int4
-- Locks: SHARE UPDATE EXCLUSIVE on the parents, which readers and finishes do not wait for.
-- Keeps: M13; a finish always finds its partition.
select rota.partitions_ensure(:days::int) as made
