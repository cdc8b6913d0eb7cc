-- Read what became of the jobs of the last hours, per job type and per type and hour, with percentiles from buckets.
-- Parameters: hours int (with the present one); job_type text (NULL: all); queue text (NULL: all)
-- Rows: job_type text; hour timestamptz; succeeded int8; succeeded_late int8; retried int8; dead int8; cancelled int8; waited_p50_s float8;
--   waited_p95_s float8; ran_p50_s float8; ran_p95_s float8. The hour is NULL in the sum of all hours; no percentile of nothing.
-- Locks: none; index stat_hour_pkey.
-- Keeps: M85, with a bound on the rows read: those of the hours asked for, not of the jobs.
with part as materialized (
  select s.* from rota.stat_hour s
  where s.hour > rota.clock() - :hours::int * interval '1 hour' and (:job_type::text is null or s.job_type = :job_type::text)
    and (:queue::text is null or s.queue = :queue::text)),
counted as (
  select p.job_type, p.hour, sum(p.succeeded)::int8 as succeeded, sum(p.succeeded_late)::int8 as succeeded_late, sum(p.retried)::int8 as retried,
    sum(p.dead)::int8 as dead, sum(p.cancelled)::int8 as cancelled
  from part p group by grouping sets ((p.job_type), (p.job_type, p.hour))),
bucket as materialized (
  select p.job_type, p.hour, k.kind, b.key::int as number, sum(b.value::int8) as jobs
  from part p cross join lateral (values ('waited', p.waited), ('ran', p.ran)) k(kind, buckets) cross join lateral jsonb_each_text(k.buckets) b
  group by p.job_type, p.hour, k.kind, b.key),
either as (
  select b.job_type, b.hour, b.kind, b.number, b.jobs from bucket b
  union all
  select b.job_type, null, b.kind, b.number, sum(b.jobs) from bucket b group by b.job_type, b.kind, b.number),
ranked as (
  select e.job_type, e.hour, e.kind, e.number, sum(e.jobs) over (below rows unbounded preceding) as upto, sum(e.jobs) over (partition by e.job_type, e.hour, e.kind) as jobs
  from either e window below as (partition by e.job_type, e.hour, e.kind order by e.number)),
spread as (
  select r.job_type, r.hour,
    rota.bucket_middle_s(min(r.number) filter (where r.kind = 'waited' and r.upto >= r.jobs * 0.50)) as waited_p50_s,
    rota.bucket_middle_s(min(r.number) filter (where r.kind = 'waited' and r.upto >= r.jobs * 0.95)) as waited_p95_s,
    rota.bucket_middle_s(min(r.number) filter (where r.kind = 'ran' and r.upto >= r.jobs * 0.50)) as ran_p50_s,
    rota.bucket_middle_s(min(r.number) filter (where r.kind = 'ran' and r.upto >= r.jobs * 0.95)) as ran_p95_s
  from ranked r group by r.job_type, r.hour)
select c.job_type, c.hour, c.succeeded, c.succeeded_late, c.retried, c.dead, c.cancelled, s.waited_p50_s, s.waited_p95_s, s.ran_p50_s, s.ran_p95_s
from counted c left join spread s on s.job_type = c.job_type and coalesce(s.hour, '-infinity') = coalesce(c.hour, '-infinity')
order by c.job_type, c.hour desc
