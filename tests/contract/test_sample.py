"""The module of the first issue runs unchanged: it is imported in a fresh process, against a
database of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from tests.support.rules import rule

ROOT = Path(__file__).parents[2]

USE_IT = """
import json, psycopg
from datetime import datetime, timedelta, timezone
from tests.contract import sample

with psycopg.connect(connection_url) as connection:
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
    "sign_up": [[one.created, one.status] for one in enqueued],
    "again": [again.created, again.status],
    "report": [report.claimed, report.succeeded],
    "results": [[job.id, job.result] for job in found],
}))
sample.app.close()
"""


@rule("M20", "M21", "M51")
def test_importing_the_sample_enqueues_three_jobs_with_what_their_type_declares(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    _python("import tests.contract.sample", database)

    rows = connection.execute(
        "select job_type, queue, payload, status, priority, max_attempts, expires_at - run_at = "
        "interval '1 day', run_at = created_at"
        " from rota.job order by id"
    ).fetchall()
    # max_attempts left out means the type's, when the attempt is settled.
    assert rows == [
        ("send_welcome_email", "email", {"user_id": user_id}, "queued", 0, None, True, True)
        for user_id in (42, 1, 2)
    ]
    assert connection.execute("select count(*) from rota.job_history").fetchone() == (0,)


@rule("M12", "M20", "M21", "M51")
def test_the_sample_signs_up_in_the_callers_transaction_and_its_jobs_run(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    said = json.loads(_python(f"connection_url = {database!r}\n{USE_IT}", database))

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


def _python(code: str, url: str) -> str:
    environment = {**os.environ, "ROTA_DATABASE_URL": url, "PGTZ": "UTC"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
