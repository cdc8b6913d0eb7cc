-- Calls schedule_changed at each update; that function says which columns matter. PostgreSQL prints
-- a long WHEN in other words after a dump and a restore, and the trigger would look changed.
create or replace trigger schedule_changed
before update on schedule
for each row
execute function schedule_changed();
