-- Returns which jobs of a cap ('type NAME' or 'queue NAME') live workers would claim, each as its
-- queue, a line feed and its type. NULL: none, so no job waits for another.
-- Locks: none. It reads all rows of `worker`.
create or replace function {schema}.cap_served(p_key text)
returns text[]
language plpgsql stable
as $$
declare
  v_name text := substr(p_key, strpos(p_key, ' ') + 1);
  v_types text[] := case when p_key like 'type %' then {schema}.type_names(v_name) end;
begin
  return (
    select array_agg(distinct served.queue || e'\n' || known.job_type)
    from {schema}.worker w
    cross join lateral jsonb_object_keys(w.queues) served(queue)
    cross join lateral unnest(w.job_types) known(job_type)
    where {schema}.is_alive(w.heartbeat_at, w.stopped_at)
      and (v_types is null or known.job_type = any (v_types))
      and (v_types is not null or served.queue = v_name)
  );
end $$;
