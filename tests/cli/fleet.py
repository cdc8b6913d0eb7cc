"""A busy shop at a clock that stands still: long names, long errors, other scripts, and workers in
each state."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

from tests.store.planned import set_clock

Connection = psycopg.Connection[TupleRow]

NOON = "2031-05-10 12:00:00"
TYPES = ("mail.welcome", "billing.invoices.send_monthly_statement", "注文確認メール")
"""No table may cut one of these."""
ERROR = (
    "[Errno 111] Connection refused by smtp-relay-01.eu-west-1.internal.example.com:587 while "
    "the message to ada@example.com was being sent"
)
QUEUE = "partner-webhooks-europe-west-high-priority"
WORKERS = (
    "worker-7f9c4d5b8-x2kqp.default.svc-4711-a3f9",
    "worker-7f9c4d5b8-zz9pl.default.svc-17-b0c1",
)

FLEET = f"""
select rota.partition_ensure('attempt', '2031-05-10');
update rota.stat_rollup set complete_to = rota.clock();
delete from rota.alert_rule;
insert into rota.job_type (name, queue, retry_after, release)
values ('{TYPES[1]}', '{QUEUE}', '{{1 min,5 min,30 min,2 h}}', '2031.5.1');
insert into rota.job (id, job_type, queue, priority, status, attempts, run_at, created_at,
  started_at, failed_at, locked_by, locked_until, error_type, last_error, verdict, verdict_rule)
select id, job_type, queue, 0, status, attempts, rota.clock() + due, rota.clock() - interval '2 h',
  rota.clock() + started, rota.clock() + failed, worker, rota.clock() + leased, error_type, message,
  verdict, rule
from (values
  (4101, '{TYPES[1]}', '{QUEUE}', 'queued', 0, interval '59 min', null::interval, null::interval,
    null, null::interval, null, null, null, null),
  (4102, '{TYPES[0]}', 'mail', 'failed', 2, interval '40 s', interval '-30 s', interval '-12 s',
    null, null, 'ConnectionRefusedError', '{ERROR}', 'transient', 'connection trouble'),
  (4103, '{TYPES[2]}', 'キュー', 'running', 1, interval '-5 min', interval '-4 min', null,
    '{WORKERS[0]}', interval '1 min', null, null, null, null),
  (4104, '{TYPES[2]}', 'キュー', 'dead', 3, interval '-3 h', interval '-2 h', interval '-2 h',
    null, null, 'FileNotFoundError', '売上.csv', 'fatal', 'FileNotFoundError')
) j(id, job_type, queue, status, attempts, due, started, failed, worker, leased, error_type,
  message, verdict, rule);
insert into rota.attempt (job, claim, attempt, job_type, worker, started_at, finished_at, outcome,
  error_type, message, verdict, verdict_rule, next_run_at)
values (4102, 2, 2, '{TYPES[0]}', '{WORKERS[1]}', rota.clock() - interval '30 s',
  rota.clock() - interval '12 s', 'failed', 'ConnectionRefusedError', '{ERROR}', 'transient',
  'connection trouble', rota.clock() + interval '40 s');
insert into rota.stat_hour (hour, job_type, queue, succeeded, succeeded_late, retried, dead,
  waited, ran, failed_by_release)
values ('2031-05-10 11:00Z', '{TYPES[1]}', '{QUEUE}', 12345, 67, 89, 0, '{{"20": 9, "38": 1}}',
  '{{"28": 10}}', '{{"2031.5.1": 80, "2031.5.0": 9}}');
insert into rota.worker (name, host, pid, version, release, job_types, queues, slots, running,
  started_at, heartbeat_at, stopped_at, succeeded, failed, dead)
select name, 'host', 1, '0.1.0', '2031.5.1', '{{}}', queues::jsonb, 20, 5, rota.clock() - age,
  rota.clock() - quiet, rota.clock() - stopped, 12345, 67, 8
from (values
  ('{WORKERS[0]}', interval '3 h', interval '4 s', null::interval,
    '{{"mail": 20, "{QUEUE}": 5, "reports": 2, "default": 10}}'),
  ('{WORKERS[1]}', interval '3 h', interval '40 s', null, '{{"default": null}}'),
  ('cron-1-aa', interval '58 s', interval '50 s', interval '50 s', '{{"default": null}}'),
  ('lost-1-bb', interval '9 h', interval '3 min', null, '{{"mail": 20}}')
) w(name, age, quiet, stopped, queues);
insert into rota.queue (name, paused_at, paused_until, paused_by, paused_why) values ('mail',
  rota.clock() - interval '10 min', rota.clock() + interval '2 h', 'ada@example.com', 'it moves');
insert into rota.schedule (name, origin, job_type, payload, cron, timezone, next_run_at,
  last_run_at, last_job, since, created_at, updated_at)
values ('monthly-statements-for-all-customers-of-europe', 'cli', '{TYPES[1]}', '{{}}',
  '0 2 1 * *', 'Europe/Stockholm', '2031-06-01 00:00Z', '2031-05-10 00:00Z', 3900,
  '2031-01-01Z', '2031-01-01Z', '2031-01-01Z');
insert into rota.alert_rule (name, kind, at_least, period, severity)
values ('dead', 'dead', 5, '1 h', 'critical');
insert into rota.alert (rule, subject, state, severity, since, last_notified_at, notifications,
  value, message)
values ('dead', '', 'fires', 'critical', rota.clock() - interval '2 h',
  rota.clock() - interval '1 h', 3, 9, '9 jobs died in the last hour, of {TYPES[2]}: {ERROR}');
insert into rota.effect (origin_id, key, job, claim, entry, if_uncertain, intended_at)
values (0, 'invoice_charge:customer:0001234567:2031-05:provider-reference', 4102, 2, 1, 'dead',
  rota.clock() - interval '40 s');
"""


def open_shop(connection: Connection) -> None:
    """Let the clock stand and insert the rows."""
    set_clock(connection, NOON)
    connection.execute("set session_replication_role = replica")
    connection.execute(FLEET.encode())
    connection.execute("reset session_replication_role")
