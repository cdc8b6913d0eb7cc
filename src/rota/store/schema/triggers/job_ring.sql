-- A commit that carries a NOTIFY takes a database-wide lock until it is flushed, so the bell rings only for rows that are due, and only while a
-- worker waits for their queue. The channel is named like the schema, its payload is the queue.
create or replace function job_ring() returns trigger language plpgsql security definer set search_path from current as $$
begin
  if exists (select from queue q where q.bell_until > clock()) then
    perform pg_notify(tg_table_schema, due.queue)
    from (select distinct f.queue from fresh f join queue q on q.name = f.queue
          where f.status = 'queued' and f.run_at <= clock() and q.bell_until > clock()
            and (q.paused_at is null or q.paused_until <= clock())) due;  -- of a paused one nobody may claim
  end if;
  return null;
end $$;

create or replace trigger job_ring after insert on job referencing new table as fresh for each statement execute function job_ring();
