"""A history as a busy fortnight leaves it, made inside the server: what searching and counting are
measured beside.
"""

from __future__ import annotations

import psycopg

DAYS = 14
TYPES, QUEUES = 50, 10
WITH_ERRORS = 0.02
"""The share of jobs that failed at least once.

Some of them are dead, some were cancelled, the others succeeded with a later attempt.
"""
DEAD_EVERY = 40
"""Of the jobs with errors every fortieth is dead."""

_PARTITIONS = """
select rota.partition_ensure(t.name, (d.day at time zone 'UTC')::date)
from generate_series(rota.clock() - make_interval(days => %(days)s + 1), rota.clock(),
  interval '1 day') d(day)
cross join unnest(array['job_history', 'attempt']) t(name)"""

# Finished one after the other, evenly over the days, as they would have been appended. Each
# hundredth id belongs to a job that had been put off for a day.
_PAST = """
create temp table past on commit drop as
select id, finished_at, finished_at - ran * interval '1 second' as started_at, ran, waited,
  n %% {errors_every} = 0 as has_errors, n %% {dead_every} = 0
    as is_dead, n %% {cancelled_every} = 0 as is_cancelled,
  case when n %% 100000 = 77 then 'rare' else 'type_' || n %% {types} end
    as job_type, 'queue_' || n %% {queues} as queue
from (select n, %(first)s + case when n %% 100 = 0
  and n > %(per_day)s then 2 * (n - %(per_day)s) + 1 else 2 * n end as id,
        rota.clock() - make_interval(days => %(days)s)
          + n * (make_interval(days => %(days)s) / %(rows)s) as finished_at,
        exp(3 * random()) / 50 as ran, exp(5 * random()) / 100 as waited
      from generate_series(%(low)s::int8, %(high)s::int8) n) made"""

_HISTORY = """
insert into rota.job_history (id, queue, job_type, payload, status, priority, run_at, attempts,
  claims, idempotency_key, created_at, updated_at,
  started_at, failed_at, finished_at, release, last_error, error_type)
select id, queue, job_type, jsonb_build_object('user_id', id, 'template', 'welcome'), case
  when is_cancelled then 'cancelled' else 'succeeded' end, 0,
  started_at - waited * interval '1 second', case when has_errors then 2 else 1 end, 2, case
    when id %% 10 = 0 then 'k' || id end,
  started_at - interval '1 minute', finished_at, started_at, case
    when has_errors then started_at - interval '50 s' end, finished_at, 'r1',
  case when has_errors then 'partner ' || id %% 1000 || ' does not answer: connection refused'
    end, case when has_errors then 'PartnerError' end
from past where not is_dead order by finished_at"""

_DEAD = """
insert into rota.job (id, queue, job_type, payload, status, priority, run_at, attempts, claims,
  created_at, updated_at, started_at, failed_at,
  last_error, error_type, verdict, verdict_rule)
select id, queue, job_type, '{{}}', 'dead', 0, started_at, 10, 20,
  started_at - interval '1 minute', finished_at, started_at, finished_at,
  'no such customer ' || id %% 1000, 'NoSuchCustomer', 'fatal', 'fatal_on NoSuchCustomer'
from past where is_dead"""

_ATTEMPTS = """
insert into rota.attempt (job, claim, attempt, job_type, worker, release, started_at, finished_at,
  outcome, error_type, message, verdict,
  verdict_rule, stack)
select id, 1, 1, job_type, 'w', 'r1', started_at - interval '51 s', case
  when is_dead then finished_at else started_at - interval '50 s' end,
  case when is_dead then 'dead' else 'failed' end, case when is_dead then 'NoSuchCustomer'
    else 'PartnerError' end,
  case when is_dead then 'no such customer ' || id %% 1000
    else 'partner ' || id %% 1000 || ' does not answer: connection refused' end,
  'transient', 'unknown error', repeat('  File "shop.py", line 1, in send' || chr(10), 20)
from past where has_errors order by finished_at"""

_KEYS = """
insert into rota.idempotency (job_type, key, job, expires_at)
select job_type, 'k' || id, id, finished_at + interval '90 days' from past where id %% 10 = 0
  and not is_dead"""

BATCH = 500_000


def fill(connection: psycopg.Connection, rows: int, days: int = DAYS) -> None:
    """Add the history of `rows` jobs over the last `days` days."""
    every = round(1 / WITH_ERRORS)
    shape = {
        "errors_every": every,
        "dead_every": every * DEAD_EVERY,
        "cancelled_every": every * 4,
        "types": TYPES,
        "queues": QUEUES,
    }
    connection.execute(_PARTITIONS.encode(), {"days": days})
    row = connection.execute("select coalesce(max(id), 0) from rota.job_history").fetchone()
    first = row[0] if row is not None else 0
    connection.execute("select setval('rota.job_id_seq', %s)", [first + 2 * rows])
    for low in range(1, rows + 1, BATCH):
        asked = {
            "days": days,
            "rows": rows,
            "per_day": rows // days,
            "low": low,
            "high": min(rows, low + BATCH - 1),
            "first": first,
        }
        with connection.transaction():
            connection.execute("set local synchronous_commit = off")
            connection.execute(_PAST.format(**shape).encode(), asked)
            for statement in (_HISTORY, _DEAD, _ATTEMPTS, _KEYS):
                connection.execute(statement.format().encode().replace(b"%%", b"%"))
    connection.execute(
        b"select setval(pg_get_serial_sequence('rota.job', 'id'), (select max(id) from "
        b"rota.job_history))"
    )
