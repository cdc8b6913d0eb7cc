-- Claim due jobs for a worker, and read in the same round trip what else it must know.
-- Parameters: worker text; release text;
--   types text[]; leases interval[]; records bool[] (each one per type);
--   jobs int[]; ordinary int[] (the most of each group of slots, and how many of them may be
--   ordinary); lo int[]; urgent_hi int[]; hi int[] (branches of each group);
--   branch_queues text[]; priorities int2[]; after_run_at timestamptz[]; after_id int8[];
--   depths interval[] (per branch);
--   queues text[] (all that are searched);
--   ahead interval (how long before its slot a rate limit may give a start; NULL: ask none);
--   refused int8[] (around these, and around each further row that is refused; NULL: all or none);
--   asked_since timestamptz[] (per queue the newest look_back_asked_at that the worker knows);
--   probe bool (look for unknown priorities);
--   known jsonb (queue to known priorities, for the probe);
--   upkeep jsonb (what upkeep_due is asked; NULL: nothing);
--   poll text (what other idle workers hear of this claim; NULL: nothing)
-- Rows: {claimed}; started timestamptz; snapshot text (which transactions were under way when it
--   looked); news text; told bool (whether other workers hear of it). For each paused queue a row
--   with a queue and no id. The last row has neither, and is the only row with started, snapshot
--   and news. news is NULL, or JSON: {"look_back": [[queue, to, asked_at]], "priorities": [[queue,
--   priority]], "next_in_s": seconds until the next job is due, "upkeep": what upkeep_due answers}.
--   With priorities in it nothing was claimed, because one of them may be the most urgent.
-- Locks: the rows it returns, with SKIP LOCKED; index job_ready.
-- Keeps: M30, no job goes to two workers; M31, a claim is a lease; M22.
select
  {claimed},
  case when c.queue is null then :schema.clock() end as started,
  case
    when c.queue is null then concat_ws(
      ',',
      pg_current_snapshot(),
      -- It lists no number that was given after the last transaction that has ended.
      (
        select string_agg(n::text, ',')
        from (select pg_snapshot_xmax(pg_current_snapshot()) as xmax) s
        cross join lateral generate_series(
          s.xmax::text::int8, s.xmax::text::int8 + least(age(s.xmax::xid), 1000) - 1
        ) n
      )
    )
  end as snapshot,
  case when c.queue is null then news.news end as news,
  case
    when c.queue is null and :poll::text is not null
      then pg_notify(:'schema'::text, :poll::text) is not null
  end as told
from :schema.claim_news(
  :queues::text[],
  :asked_since::timestamptz[],
  :probe::bool,
  :known::jsonb,
  :upkeep::jsonb
) news(news)
cross join lateral :schema.job_claim(
  :worker::text, :release::text,
  :types::text[], :leases::interval[], :records::bool[],
  :jobs::int[], :ordinary::int[],
  :lo::int[], :urgent_hi::int[], :hi::int[],
  :branch_queues::text[], :priorities::int2[],
  :after_run_at::timestamptz[], :after_id::int8[], :depths::interval[],
  :ahead::interval,
  coalesce(news.news::jsonb -> 'priorities'::text <> '[]'::jsonb, false),
  :refused::int8[],
  true
) c
