-- Write what was decided of a rule's subjects, and learn what is to be told.
-- Parameters: rule text; steps text (JSON: an array of what alert_write takes); pause interval
-- Rows: subject text; state text; since timestamptz; told int4; value float8; message text; severity text; problem text
-- Locks: the row of the rule, then those of its alerts, by subject.
-- Keeps: M86, each is told once: the row names how often it had been told.
select subject, state, since, told, value, message, severity, problem from rota.alert_write(:rule::text, :steps::text::jsonb, :pause::interval)
