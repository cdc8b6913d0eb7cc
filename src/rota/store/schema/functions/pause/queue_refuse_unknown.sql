-- Refuses a queue that nobody knows, unless p_force: most often its name is mistyped, and the right
-- queue would run on. No queue, type, schedule or worker has the name, and no job but a dead one.
-- Locks: none; indexes job_ready, job_put_off and job_lease.
-- Keeps: M87, whoever acts on a queue by name acts on the queue that he means.
create or replace function {schema}.queue_refuse_unknown(p_queue text, p_force boolean)
returns void
language plpgsql stable
set enable_seqscan = off
as $$
declare
  v_known text[];
  v_nearest text;
begin
  if p_force or exists (select from {schema}.queue q where q.name = p_queue) then
    return;
  end if;
  v_known := array(
    select 'default'
    union select q.name from {schema}.queue q
    union select t.queue from {schema}.job_type t
    union select s.queue from {schema}.schedule s
    union select jsonb_object_keys(w.queues) from {schema}.worker w
    union select r.queue from {schema}.ready_queues() r(queue, priority)
  );
  if p_queue = any (v_known)
    or exists (select from {schema}.job j where j.status = 'waiting' and j.queue = p_queue)
    or exists (select from {schema}.job j where j.status = 'running' and j.queue = p_queue)
  then
    return;
  end if;
  -- Pairs of letters that both names have, as a share of all pairs.
  select k.name into v_nearest
  from unnest(v_known) k(name)
  cross join lateral (
    select count(*) * 2.0 / (length(k.name) + length(p_queue) + 2) as share
    from (
      select substr(k.name, i, 2) from generate_series(0, length(k.name)) i
      intersect
      select substr(p_queue, i, 2) from generate_series(0, length(p_queue)) i
    ) pair
  ) common
  where common.share > 0.4
  order by common.share desc, k.name
  limit 1;
  raise invalid_parameter_value using message = format(
    'no job, type or worker has a queue %L%s; force takes the name as it is',
    {schema}.one_line(p_queue, 100),
    case
      when v_nearest is not null
        then format(' (did you mean %L?)', {schema}.one_line(v_nearest, 100))
    end
  );
end $$;
