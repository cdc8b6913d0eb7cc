-- Returns the workers that were seen within a time: alive, gone without a word, or stopped.
-- Locks: none.
-- Keeps: M85, whoever asks what the workers of the last hour know and serve gets one answer.
create or replace function {schema}.workers_seen(p_within interval)
returns setof {schema}.worker
language sql stable
as $$
  select w.*
  from {schema}.worker w
  where {schema}.last_seen(w.heartbeat_at, w.stopped_at) > {schema}.clock() - p_within
$$;
