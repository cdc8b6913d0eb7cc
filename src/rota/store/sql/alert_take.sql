-- Take the rules of alerts that are due to be evaluated.
-- Parameters: none
-- Rows: name text; repeat_after interval
-- Locks: the rows of the rules, with SKIP LOCKED.
-- Keeps: M86, over a whole fleet a rule is evaluated by one worker at a time.
select name, repeat_after from rota.alert_take()
