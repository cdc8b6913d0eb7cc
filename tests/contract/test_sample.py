"""The module of the first issue runs unchanged: it is imported in a fresh process, against a
database of its own.
"""

from __future__ import annotations

import json
import os

import psycopg
from psycopg.rows import TupleRow

from tests.support import forked
from tests.support.rules import rule

USE_IT = """
import json, psycopg
from datetime import datetime, timedelta, timezone
from tests.contract import sample

with psycopg.connect(connection_url) as connection:
    imported = connection.execute(
        "select job_type, queue, payload, status, priority, max_attempts, "
        "expires_at - run_at = interval '1 day', run_at = created_at from rota.job order by id"
    ).fetchall()
    monday = datetime(2040, 1, 2, 9, tzinfo=timezone.utc)
    enqueued = sample.sign_up(connection, 7, monday)
    with psycopg.connect(connection_url) as other:
        jobs = other.execute("select count(*) from rota.job").fetchone()
        assert jobs == (3,), "sign_up committed by itself"
    connection.commit()
    keyed = sample.send_welcome_email.using(
        connection=connection, key="welcome_email:user:7"
    )
    again = keyed.enqueue(7)
report = sample.app.drain()
found = sample.app.find(job_type="send_welcome_email", status="succeeded")
print(json.dumps({
    "imported": imported,
    "sign_up": [[job.created, job.status] for job in enqueued],
    "again": [again.created, again.status],
    "report": [report.claimed, report.succeeded],
    "results": [[job.id, job.result] for job in found],
}))
sample.app.close()
"""


@rule("M12", "M20", "M21", "M51")
def test_the_sample_enqueues_where_it_is_imported_signs_up_in_a_transaction_and_its_jobs_run(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    environment = {**os.environ, "ROTA_DATABASE_URL": database, "PGTZ": "UTC"}
    code = f"connection_url = {database!r}\n{USE_IT}"
    ran = forked.run(["-c", code], cwd=forked.ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)

    # max_attempts left out means the type's, when the attempt is settled.
    assert said["imported"] == [
        ["send_welcome_email", "email", {"user_id": user_id}, "queued", 0, None, True, True]
        for user_id in (42, 1, 2)
    ]
    assert said["sign_up"] == [[True, "queued"], [True, "queued"]]
    assert said["again"] == [False, "queued"]
    assert said["report"] == [5, 5]
    assert all(result == {"message_id": f"<{id_}@example.com>"} for id_, result in said["results"])
    assert connection.execute(
        "select job_type, payload, run_at = '2040-01-02 09:00+00', priority from rota.job"
    ).fetchall() == [("send_welcome_email", {"user_id": 7}, True, 5)]
    assert connection.execute(
        "select payload, status, idempotency_key from rota.job_history where job_type = "
        "'rebuild_report' or idempotency_key is not null order by id"
    ).fetchall() == [
        ({"user_id": 7}, "succeeded", "welcome_email:user:7"),
        ({"day": "2026-01-14"}, "succeeded", None),
    ]
