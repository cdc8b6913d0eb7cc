-- Claim due jobs for a worker, and read in the same round trip what else it must know.
-- Parameters: worker text; release text;
--   types text[]; leases interval[]; records bool[] (each one per type);
--   queues text[]; slots int[] (the most of each queue); lo int[]; hi int[] (branches of each);
--   priorities int2[]; after_run_at timestamptz[]; after_id int8[]; depths interval[] (per branch);
--   limit int (over all queues);
--   refused int8[] (around these, and around each further row that is refused; NULL: all or none);
--   asked_since timestamptz[] (per queue the newest look_back_asked_at that the worker knows);
--   probe bool (look for unknown priorities);
--   known jsonb (queue to known priorities, for the probe)
-- Rows: started timestamptz; news text; id int8; origin_id int8; queue text; job_type text;
--   payload text; payload_version int2; priority int2; run_at timestamptz;
--   expires_at timestamptz; attempts int4; max_attempts int4; claims int4; idempotency_key text;
--   meta text; created_at timestamptz;
--   start_recorded bool (false: job_start must record it before it begins);
--   losses int2; suspected bool; schedule text; scheduled_for timestamptz;
--   refusal text (why the database refuses it).
--   One row with a NULL id when nothing was due. For each paused queue a row with a queue and no
--   id. news is NULL, or JSON:
--   {"look_back": [[queue, to, asked_at]], "priorities": [[queue, priority]]}.
--   With priorities in it nothing was claimed, because one of them may be the most urgent.
-- Locks: the rows it returns, with SKIP LOCKED; index job_ready.
-- Keeps: M30, no job goes to two workers; M31, a claim is a lease; M22, the database's clock
--   decides.
select
  :schema.clock() as started,
  news.news,
  c.id,
  coalesce(c.origin_id, c.id) as origin_id,
  c.queue, c.job_type,
  c.payload::text as payload,
  c.payload_version, c.priority, c.run_at, c.expires_at,
  c.attempts, c.max_attempts, c.claims, c.idempotency_key,
  c.meta::text as meta,
  c.created_at, c.start_recorded, c.losses,
  case when c.losses > 0 and c.error_type = 'LeaseExpired' then true end as suspected,
  c.schedule, c.scheduled_for,
  case when c.status <> 'running' then c.last_error end as refusal
from :schema.worker_news(
  :queues::text[],
  :asked_since::timestamptz[],
  :probe::bool,
  :known::jsonb
) news(news)
left join lateral :schema.job_claim(
  :worker::text, :release::text,
  :types::text[], :leases::interval[], :records::bool[],
  :queues::text[], :slots::int[], :lo::int[], :hi::int[],
  :priorities::int2[], :after_run_at::timestamptz[], :after_id::int8[], :depths::interval[],
  case when news.news::jsonb -> 'priorities' <> '[]' then 0 else :limit::int end,
  :refused::int8[],
  true
) c on true
