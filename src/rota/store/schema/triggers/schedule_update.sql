-- Calls schedule_changed, which decides which columns matter. Not a WHEN clause: PostgreSQL prints
-- a long clause in other words after a dump and a restore, and the trigger would look changed.
create or replace trigger schedule_update
before update on {schema}.schedule
for each row
execute function {schema}.schedule_changed();
