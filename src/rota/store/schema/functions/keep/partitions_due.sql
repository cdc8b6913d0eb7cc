-- Returns the commands that partitions need now; it runs none, because DETACH … CONCURRENTLY cannot
-- run in a function. Of each table at most one partition is detached, an interrupted one first.
-- Detached tables older than the setting are dropped, or moved to the archive, if any. Partitions
-- are recognised by their names.
-- Locks: none.
-- Keeps: M13, old history goes without making any other statement wait.
create or replace function {schema}.partitions_due()
returns table (step text, name text, command text)
language sql stable
as $$
  with parent as materialized (
    -- The last day to drop: its last moment is as old as the setting.
    select
      p.oid, p.relname, p.relnamespace,
      to_char(
        ({schema}.clock() - r.keep) at time zone 'UTC' - interval '1 day',
        'YYYYMMDD'
      ) as last_day
    from {schema}.retention r
    join pg_class p on p.oid = case r.what
      when 'history' then '{schema}.job_history'::regclass
      when 'attempts' then '{schema}.attempt'::regclass
    end
  ),
  partition as (
    select
      p.oid as parent,
      p.relname as parent_name,
      c.relname as name,
      i.inhrelid is not null as is_on,
      coalesce(i.inhdetachpending, false) as is_pending,
      right(c.relname::text, 8) <= p.last_day collate "C" as is_old
    from parent p
    join pg_class c
      on c.relnamespace = p.relnamespace
      and c.relkind = 'r'
      and c.relname ~ '_[0-9]{8}$'
      and left(c.relname::text, -9) = p.relname::text
    left join pg_inherits i on i.inhrelid = c.oid
  ),
  off as (
    select distinct on (p.parent) p.parent_name, p.name, p.is_pending
    from partition p
    where p.is_on
      and (p.is_pending or p.is_old)
    order by p.parent, p.is_pending desc, p.name
  )
  select
    'detach',
    o.name::text,
    format(
      'alter table %I.%I detach partition %I.%I %s',
      '{schema}', o.parent_name, '{schema}', o.name,
      case
        when o.is_pending then 'finalize'
        else 'concurrently'
      end
    )
  from off o
  union all
  (
    select
      case when a.archive is null then 'drop' else 'archive' end,
      p.name::text,
      case
        when a.archive is null then format('drop table if exists %I.%I', '{schema}', p.name)
        else format('alter table if exists %I.%I set schema %I', '{schema}', p.name, a.archive)
      end
    from partition p
    cross join (select (select i.archive from {schema}.installation i) as archive) a
    where p.is_old
      and not p.is_on
    order by p.name
  )
$$;
