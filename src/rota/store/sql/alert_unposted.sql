-- Take what was told of alerts and is not posted yet.
-- Parameters: limit int
-- Rows: rule text; subject text; state text; severity text; since timestamptz; over_at timestamptz; told int4; value float8; message text
-- Locks: the rows of the alerts, with SKIP LOCKED.
-- Keeps: M86, over a whole fleet one posts it; one that could not be posted is tried again.
select rule, subject, state, severity, since, over_at, told, value, message from rota.alert_unposted(:limit::int)
