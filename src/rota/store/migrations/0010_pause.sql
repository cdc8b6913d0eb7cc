-- Why: people stop a queue, or everything, while something is mended; and a copy of a production database must not do production's work. The claim itself
-- asks (0004_work.sql): what is committed here holds for every claim that begins later. Oldest release that can live with this: 0.1.0.

-- Whether everything is paused, or this is a restored copy that nobody has released: then nothing may be claimed, and no schedule may tick.
create function rota.is_paused() returns boolean language sql stable set enable_seqscan = off set search_path = rota, pg_temp as $$
  select exists (select from rota.site s
                 where s.copied is not null or s.paused_at is not null and (s.paused_until is null or s.paused_until > rota.clock()))
$$;

-- Since when the pause of a queue, or of everything, is in force; NULL: it is not. Paused again, it is since then still, and who, why and until when are
-- the newest: people take a pause over from each other. The pause of a schedule goes by the same rule (0008_schedule.sql), and has no end of its own.
create function rota.paused_since(p_paused_at timestamptz, p_paused_until timestamptz) returns timestamptz language sql stable
set search_path = rota, pg_temp as $$ select case when p_paused_until <= rota.clock() then null else p_paused_at end $$;

-- Pauses a queue: once this is committed, nothing of it is claimed until p_until has passed (NULL: until somebody resumes it). What runs goes on. The queue
-- need not have had a job yet. SECURITY DEFINER: whoever is granted this needs no right on a table.
create function rota.queue_pause(p_queue text, p_until timestamptz default null, p_why text default null, p_by text default null)
returns table (queue text, paused_at timestamptz, paused_until timestamptz, paused_by text, paused_why text)
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  if p_queue is null or length(p_queue) not between 1 and 100 then
    raise invalid_parameter_value using message = 'a queue''s name has 1 to 100 characters';
  end if;
  perform rota.pause_refuse_past(p_until);
  return query
  insert into rota.queue as q (name, paused_at, paused_until, paused_by, paused_why)
  values (p_queue, rota.clock(), p_until, coalesce(rota.one_line(p_by, 200), session_user), rota.one_line(p_why, 500))
  on conflict (name) do update
  set paused_at = coalesce(rota.paused_since(q.paused_at, q.paused_until), excluded.paused_at), paused_until = excluded.paused_until,
    paused_by = excluded.paused_by, paused_why = excluded.paused_why
  returning q.name, q.paused_at, q.paused_until, q.paused_by, q.paused_why;
  perform rota.acted('pause', p_why, p_by, p_queue => p_queue, p_detail => case when p_until is not null then jsonb_build_object('until', p_until) end);
end $$;
revoke execute on function rota.queue_pause(text, timestamptz, text, text) from public;

create function rota.pause_refuse_past(p_until timestamptz) returns void language plpgsql set search_path = rota, pg_temp as $$
begin
  if p_until <= rota.clock() then
    raise invalid_parameter_value using message = format('until must lie in the future, not at %s; it is %s by the database''s clock', p_until, rota.clock());
  end if;
  if p_until >= '9000-01-01 00:00:00+00' then  -- Python could not read the row, and with it no other
    raise invalid_parameter_value
      using message = format('until must lie before the year 9000, not at %s; leave it out for a pause until somebody resumes it', p_until);
  end if;
end $$;

-- Resumes a queue; false, and nothing written, when it is not paused. The frontiers of the workers have waited where they were; they are woken.
create function rota.queue_resume(p_queue text, p_why text default null, p_by text default null) returns boolean
language plpgsql security definer set search_path = rota, pg_temp as $$
declare v_was_paused boolean; begin
  with before as (
    select q.name, rota.paused_since(q.paused_at, q.paused_until) is not null as was_paused from rota.queue q
    where q.name = p_queue and q.paused_at is not null for update)
  update rota.queue q set paused_at = null, paused_until = null, paused_by = null, paused_why = null
  from before b where q.name = b.name returning b.was_paused into v_was_paused;
  if v_was_paused is not true then  -- one whose time had passed is cleared, and was not paused
    return false;
  end if;
  perform rota.acted('resume', p_why, p_by, p_queue => p_queue);
  perform pg_notify(current_schema(), p_queue);
  return true;
end $$;
revoke execute on function rota.queue_resume(text, text, text) from public;

-- Pauses everything: no worker claims from any queue, and no schedule ticks.
create function rota.pause_all(p_until timestamptz default null, p_why text default null, p_by text default null)
returns table (queue text, paused_at timestamptz, paused_until timestamptz, paused_by text, paused_why text)
language plpgsql security definer set search_path = rota, pg_temp as $$
#variable_conflict use_column
begin
  perform rota.pause_refuse_past(p_until);
  perform rota.stamp_missing();
  return query
  update rota.site s
  set paused_at = coalesce(rota.paused_since(s.paused_at, s.paused_until), rota.clock()), paused_until = p_until,
    paused_by = coalesce(rota.one_line(p_by, 200), session_user), paused_why = rota.one_line(p_why, 500)
  returning null::text, s.paused_at, s.paused_until, s.paused_by, s.paused_why;
  perform rota.acted('pause', p_why, p_by, p_detail => case when p_until is not null then jsonb_build_object('until', p_until) end);
end $$;
revoke execute on function rota.pause_all(timestamptz, text, text) from public;

-- Ends a pause of everything; false, and nothing written, when there is none. Queues that were paused by name stay paused.
create function rota.resume_all(p_why text default null, p_by text default null) returns boolean
language plpgsql security definer set search_path = rota, pg_temp as $$
declare v_was_paused boolean; begin
  with before as (
    select rota.paused_since(s.paused_at, s.paused_until) is not null as was_paused from rota.site s where s.paused_at is not null for update)
  update rota.site s set paused_at = null, paused_until = null, paused_by = null, paused_why = null
  from before b returning b.was_paused into v_was_paused;
  if v_was_paused is not true then
    return false;
  end if;
  perform rota.acted('resume', p_why, p_by);
  perform rota.ring_all();
  return true;
end $$;
revoke execute on function rota.resume_all(text, text) from public;

-- Wakes all workers that wait for a ring.
create function rota.ring_all() returns void language sql set search_path = rota, pg_temp as $$
  select pg_notify(current_schema(), q.name) from rota.queue q where q.bell_until > rota.clock()
$$;

-- What the server is known by; NULL where it may not be asked, as some managed services have it.
create function rota.system_identifier() returns bigint language plpgsql stable set search_path = rota, pg_temp as $$
begin
  return (select c.system_identifier from pg_control_system() c);
exception when others then
  return null;
end $$;

-- Whether this is a restored copy: whether the stamp says another database's name, or another server. Returns how it differs, NULL when it does not; reads
-- only. Where either side does not know the server, the names decide.
-- A copy in which there was nothing to protect stamps anew by itself: one that CREATE DATABASE … TEMPLATE made of a schema that had no job and never a
-- worker. That is seen by the ages of rows: in such a copy those of `migration` are older than the database, in a restored dump younger; and none of
-- the oldest thousand jobs may be as old.
create function rota.copy_seen() returns text language plpgsql stable set search_path = rota, pg_temp as $$
declare
  v_site rota.site;
  v_system bigint := rota.system_identifier();
  v_same boolean;
  v_age int;
begin
  select * into v_site from rota.site;
  v_same := v_site.database_name = current_database() and coalesce(v_site.system_identifier = v_system, true);
  if not v_same and v_site.worked_at is null and coalesce(v_site.system_identifier = v_system, true) then
    v_age := (select age(d.xmin) from pg_database d where d.datname = current_database());
    v_same := exists (select from rota.migration m where age(m.xmin) > v_age)
      and not exists (select from (select j.xmin as made from rota.job j order by j.id limit 1000) oldest where age(oldest.made) >= v_age);
  end if;
  if v_same is not false then  -- nor is it one without a stamp: it brought no data along
    return null;
  end if;
  return format('stamped as database %I of server %s, and this is database %I of server %s', v_site.database_name,
    coalesce(v_site.system_identifier::text, 'unknown'), current_database(), coalesce(v_system::text, 'unknown'));
end $$;

-- Looks whether this is a restored copy, as a worker does, and writes what has changed.
create function rota.copy_check() returns text language plpgsql set search_path = rota, pg_temp as $$
declare
  v_site rota.site;
  v_copied text;
begin
  perform rota.stamp_missing();
  select * into v_site from rota.site;
  v_copied := rota.copy_seen();
  if v_copied is distinct from v_site.copied or v_copied is null and (v_site.worked_at is null or v_site.database_name <> current_database()) then
    -- Never waited for: a claim in SQL may look in a transaction that stays open. Somebody who stamped it meanwhile knows better.
    perform from rota.site s where s.stamped_at = v_site.stamped_at for no key update skip locked;
    if found then
      if v_copied is null and v_site.database_name <> current_database() then
        perform rota.stamp(rota.system_identifier());
      end if;
      update rota.site set copied = v_copied, worked_at = case when v_copied is null then coalesce(worked_at, rota.clock()) else worked_at end;
    end if;
  end if;
  return v_copied;
end $$;

create function rota.stamp(p_system bigint) returns void language sql set search_path = rota, pg_temp as $$
  insert into rota.site as s (stamped_at, database_name, system_identifier) values (rota.clock(), current_database(), p_system)
  on conflict (is_only) do update
  set stamped_at = excluded.stamped_at, database_name = excluded.database_name, system_identifier = excluded.system_identifier, copied = null
$$;

-- A dump without data has brought no stamp along, and nothing to protect.
create function rota.stamp_missing() returns void language sql set search_path = rota, pg_temp as $$
  select rota.stamp(rota.system_identifier()) where not exists (select from rota.site)
$$;

-- Says that this copy is to work: stamps it anew. False, and nothing written, when the stamp is right.
create function rota.resume_copy(p_why text default null, p_by text default null) returns boolean
language plpgsql security definer set search_path = rota, pg_temp as $$
declare v_copied text := rota.copy_check(); begin
  if v_copied is null then
    return false;
  end if;
  perform rota.stamp(rota.system_identifier());
  perform rota.acted('resume', p_why, p_by, p_detail => jsonb_build_object('copy', v_copied));
  perform rota.ring_all();
  return true;
end $$;
revoke execute on function rota.resume_copy(text, text) from public;

select rota.stamp(rota.system_identifier());
