-- Forget what people did so long ago that it is kept no longer.
-- Parameters: limit int
-- Rows: count int4
-- Locks: the rows of the actions, with SKIP LOCKED; index action_at.
-- Keeps: a table that grows stops growing.
select rota.actions_forget(:limit::int) as count
