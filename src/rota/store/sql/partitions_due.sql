-- Say which partitions are to be taken off and dropped now, at most one of a table to take off.
-- Parameters: none
-- Rows: step text (detach or drop); name text; command text. The command is to be run as it is, in no transaction.
-- Locks: none.
-- Keeps: M13, old history goes without anybody waiting.
select step, name, command from rota.partitions_due()
