"""A day of a busy shop: rows of every table that a command shows,
at a clock that stands still."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from tests.store.planned import set_clock

Connection = psycopg.Connection[TupleRow]

NOON = "2031-05-10 12:00:00"
TYPES = (
    "mail.welcome",
    "billing.invoices.send_monthly_statement",
    "reports.generate",
    "注文確認メール",
    "crm.sync",
)
"""No table may cut one of these."""
ERRORS = (
    "[Errno 111] Connection refused by smtp-relay-01.eu-west-1.internal.example.com:587 while "
    "the message to ada@example.com was being sent",
    "ファイルが見つかりません: /var/レポート/2031-05/売上.csv",
    "no data for 2031-05-09",
)
QUEUE = "partner-webhooks-europe-west-high-priority"
WORKERS = (
    "worker-7f9c4d5b8-x2kqp.default.svc-4711-a3f9",
    "worker-7f9c4d5b8-zz9pl.default.svc-17-b0c1",
)

FLEET = f"""
select rota.partition_ensure(t.name, d.day)
from unnest(array['job_history', 'attempt']) t(name),
  unnest(array['2031-05-09', '2031-05-10']::date[]) d(day);
update rota.stat_rollup set complete_to = rota.clock();
delete from rota.alert_rule;
insert into rota.job_type (name, queue, priority, max_attempts, timeout, expires, retry_after,
  release)
values
  ('{TYPES[0]}', 'mail', 10, 8, '20 s', '1 day', '{{10 s,20 s,40 s}}', '2031.5.1'),
  ('{TYPES[1]}', '{QUEUE}', 0, 10, '5 min', null, '{{1 min,5 min,30 min,2 h}}', '2031.5.1'),
  ('{TYPES[3]}', 'キュー', 0, 3, '90 s', null, '{{1 s}}', '2031.5.1');
insert into rota.job (id, job_type, queue, priority, status, attempts, max_attempts, run_at,
  created_at,
  started_at, failed_at, locked_by, locked_until, claims, error_type, last_error, progress,
    verdict,
  verdict_rule)
select id, job_type, queue, 0, status, attempts, 10, rota.clock() + due,
  rota.clock() - interval '2 h',
  rota.clock() + started, rota.clock() + failed, worker, rota.clock() + leased, attempts,
    error_type,
  message, progress::jsonb, verdict, rule
from (values
  (4101, '{TYPES[1]}', '{QUEUE}', 'queued', 0, interval '59 min', null::interval, null::interval,
    null,
    null::interval, null, null, null, null, null),
  (4102, '{TYPES[0]}', 'mail', 'failed', 2, interval '40 s', interval '-30 s', interval '-12 s',
    null,
    null, 'ConnectionRefusedError', '{ERRORS[0]}', null, 'transient', 'connection trouble'),
  (4103, '{TYPES[2]}', 'reports', 'running', 1, interval '-5 min', interval '-4 min', null,
    '{WORKERS[0]}', interval '1 min', null, null,
    '{{"done": 40, "total": 100, "note": "seite 40", "at": "2031-05-10T11:59:57Z"}}', null, null),
  (4104, '{TYPES[3]}', 'キュー', 'dead', 3, interval '-3 h', interval '-2 h', interval '-2 h', null,
    null, 'FileNotFoundError', '{ERRORS[1]}', null, 'fatal', 'FileNotFoundError'),
  (4105, '{TYPES[4]}', 'default', 'queued', 0, interval '-3 s', null, null, null, null, null,
    null, null,
    null, null),
  (4106, '{TYPES[4]}', 'default', 'running', 1, interval '-20 min', interval '-20 min', null,
    '{WORKERS[1]}', interval '-10 min', null, null, null, null, null)
) j(id, job_type, queue, status, attempts, due, started, failed, worker, leased, error_type,
  message,
  progress, verdict, rule);
insert into rota.job_history (id, job_type, queue, payload, status, priority, attempts,
  max_attempts,
  claims, created_at, updated_at, run_at, started_at, finished_at, locked_by, release,
    idempotency_key)
select 4000 + n, (array['{TYPES[0]}', '{TYPES[1]}', '{TYPES[2]}'])[1 + n % 3],
  (array['mail', '{QUEUE}', 'reports'])[1 + n % 3],
  '{{"user_id": 42, "template": "welcome", "text": "a long text that has many words in it"}}',
  'succeeded', 0, 1, 10, 1, t.at, t.at, t.at - interval '8 s', t.at - interval '2 s', t.at,
  '{WORKERS[0]}', '2031.5.1', 'welcome:user:' || n
from generate_series(1, 30) n, lateral (select rota.clock() - n * interval '100 s' as at) t;
insert into rota.attempt (job, claim, attempt, job_type, worker, release, started_at, finished_at,
  outcome, error_type, message, verdict, verdict_rule, next_run_at)
values
  (4102, 1, 1, '{TYPES[0]}', '{WORKERS[0]}', '2031.5.1', rota.clock() - interval '62 s',
    rota.clock() - interval '60 s', 'failed', 'ConnectionRefusedError', '{ERRORS[0]}',
      'transient',
    'connection trouble', rota.clock() - interval '32 s'),
  (4102, 2, 2, '{TYPES[0]}', '{WORKERS[1]}', '2031.5.1', rota.clock() - interval '30 s',
    rota.clock() - interval '12 s', 'failed', 'ConnectionRefusedError', '{ERRORS[0]}',
      'transient',
    'connection trouble', rota.clock() + interval '40 s'),
  (4104, 3, 3, '{TYPES[3]}', '{WORKERS[1]}', null, rota.clock() - interval '2 h',
    rota.clock() - interval '2 h', 'dead', 'FileNotFoundError', '{ERRORS[1]}', 'fatal',
    'FileNotFoundError', null);
insert into rota.stat_hour (hour, job_type, queue, succeeded, succeeded_late, retried, dead,
  waited, ran,
  failed_by_release)
values
  ('2031-05-10 11:00Z', '{TYPES[0]}', 'mail', 12345, 67, 89, 0, '{{"20": 9, "38": 1}}',
    '{{"28": 10}}',
    '{{"2031.5.1": 80, "2031.5.0": 9}}'),
  ('2031-05-10 10:00Z', '{TYPES[0]}', 'mail', 999, 0, 1, 0, '{{"20": 9}}', '{{"28": 10}}',
    '{{}}'),
  ('2031-05-10 10:00Z', '{TYPES[1]}', '{QUEUE}', 7, 0, 0, 2, '{{"50": 9}}', '{{"60": 10}}',
    '{{}}');
insert into rota.worker (name, host, pid, version, release, job_types, queues, slots, running,
  started_at, heartbeat_at, stopped_at, succeeded, failed, dead)
select name, 'host', 1, '0.1.0', release, '{{}}', queues::jsonb, 20, 5, rota.clock() - age,
  rota.clock() - quiet, rota.clock() - stopped, 12345, 67, 8
from (values
  ('{WORKERS[0]}', '2031.5.1', interval '3 h', interval '4 s', null::interval,
    '{{"mail": 20, "{QUEUE}": 5, "reports": 2, "default": 10}}'),
  ('{WORKERS[1]}', '2031.5.1', interval '3 h', interval '40 s', null, '{{"default": null}}'),
  ('cron-1-aa', '2031.5.0', interval '58 s', interval '50 s', interval '50 s',
    '{{"default": null}}'),
  ('lost-1-bb', '2031.5.0', interval '9 h', interval '3 min', null, '{{"mail": 20}}')
) w(name, release, age, quiet, stopped, queues);
insert into rota.queue (name, paused_at, paused_until, paused_by, paused_why)
values ('mail', rota.clock() - interval '10 min', rota.clock() + interval '2 h',
  'ada@example.com',
  'the relay is being moved');
insert into rota.schedule (name, origin, job_type, payload, cron, timezone, next_run_at,
  last_run_at,
  last_job, since, created_at, updated_at)
values
  ('monthly-statements-for-all-customers-of-europe', 'cli', '{TYPES[1]}', '{{"region": "eu"}}',
    '0 2 1 * *', 'Europe/Stockholm', '2031-06-01 00:00Z', '2031-05-01 00:00Z', 3900,
    '2031-01-01Z', '2031-01-01Z', '2031-01-01Z'),
  ('nightly', 'api', '{TYPES[2]}', '{{}}', '0 2 * * *', 'UTC', '2031-05-11 02:00Z',
    '2031-05-10 02:00Z', 4003, '2031-01-01Z', '2031-01-01Z', '2031-01-01Z');
insert into rota.schedule_run (schedule, job, scheduled_for, enqueued_at) values
  ('nightly', 4002, '2031-05-10 02:00Z', '2031-05-10 02:00:01Z'),
  ('nightly', 4104, '2031-05-09 02:00Z', '2031-05-09 02:00:01Z');
insert into rota.alert_rule (name, kind, at_least, period, severity, queue, enabled) values
  ('dead', 'dead', 5, '1 h', 'critical', null, true),
  ('nobody serves the webhooks of our partners', 'no_worker', 1, '5 min', 'warning', '{QUEUE}',
    false);
insert into rota.alert (rule, subject, state, severity, since, last_notified_at, notifications,
  value,
  message)
values ('dead', '', 'fires', 'critical', rota.clock() - interval '2 h',
  rota.clock() - interval '1 h',
  3, 9, '9 jobs died in the last hour, of {TYPES[3]} and {TYPES[1]}; the newest: {ERRORS[1]}');
insert into rota.effect (origin_id, key, place, job, claim, entry, if_uncertain, intended_at,
  done_at,
  result)
values
  (0, 'invoice_charge:customer:0001234567:2031-05:provider-reference', null, 4102, 2, 1, 'dead',
    rota.clock() - interval '40 s', null, null),
  (4103, 'charge', 1, 4103, 1, 1, 'skip', rota.clock() - interval '4 min', null, null);
"""


def open_shop(connection: Connection) -> None:
    """Let the clock stand and insert the rows."""
    set_clock(connection, NOON)
    connection.execute("set session_replication_role = replica")
    connection.execute(FLEET.encode())
    connection.execute("reset session_replication_role")
