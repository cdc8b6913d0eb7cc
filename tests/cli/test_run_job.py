"""`rota run ID`: one job in the foreground, handed back uncharged or recorded."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.cli.here import Here
from tests.support.rules import rule

Connection = psycopg.Connection[TupleRow]

APP = """
import asyncio, os, threading
import rota

app = rota.App(release="shop-1")


@app.job("add", queue="sums", timeout="1s")
def add(a: int) -> int:
    assert threading.current_thread() is threading.main_thread()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return a + 1
    raise AssertionError("a loop runs here")


@app.job("aadd")
async def aadd(a: int) -> int:
    await asyncio.sleep(0)
    assert threading.current_thread() is threading.main_thread()
    return a + 1


@app.job("fail", process=True)
def fail() -> None:
    assert threading.current_thread() is threading.main_thread()
    raise ValueError("no such user")


@app.job("mail", takes_context=True)
def mail(ctx: rota.Context) -> None:
    with ctx.effect("mail:1") as effect:
        if not effect.done:
            print("sending", flush=True)
    ctx.step("count", print, "counting", flush=True)
    ctx.progress(1, 2)
    raise ValueError("after the mail")


@app.job("finish", takes_context=True)
def finish(ctx: rota.Context) -> None:
    with ctx.transaction():
        pass


@app.job("later")
def later() -> None:
    raise rota.Snooze("1h")


@app.job("wait")
def wait() -> None:
    print("waiting", flush=True)
    threading.Event().wait()


@app.job("wait_here")
def wait_here() -> None:
    if threading.current_thread() is threading.main_thread():
        print("waiting", flush=True)
        threading.Event().wait()


@app.job("await_")
async def await_() -> None:
    print("waiting", flush=True)
    await asyncio.Event().wait()
"""


@pytest.fixture
def rota(tmp_path: Path, database: str) -> Here:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "pyproject.toml").write_text('[tool.rota]\napp = "shop:app"\n')
    return Here(tmp_path, ROTA_DATABASE_URL=database)


def insert(
    connection: Connection, job_type: str, payload: str = "{}", run_at: str = "now()"
) -> int:
    [(job,)] = connection.execute(
        f"insert into rota.job (job_type, payload, run_at) values (%s, %s, {run_at}) returning id",
        [job_type, payload],
    ).fetchall()
    return int(job)


def look(connection: Connection, job: int) -> tuple[object, ...]:
    """What a hand-back must leave as it was."""
    [row] = connection.execute(
        "select status, attempts, losses, run_at, locked_by, last_error from rota.jobs "
        "where id = %s",
        [job],
    ).fetchall()
    return row


def test_a_job_of_the_future_is_run_here_and_handed_back(
    rota: Here, connection: Connection
) -> None:
    for job_type in ("add", "aadd"):
        job = insert(connection, job_type, '{"a": 1}', "now() + interval '7 days'")
        before = look(connection, job)
        ran = rota.ok("run", str(job))
        assert ran.out.splitlines()[0] == f"job {job} {job_type}: its handler returned 2"
        assert f"job {job} {job_type} is queued, due at " in ran.out
        assert look(connection, job) == before


def test_a_failure_shows_its_traceback_and_is_not_charged_and_an_outcome_is_named(
    rota: Here, connection: Connection
) -> None:
    fail, later = insert(connection, "fail"), insert(connection, "later")
    before = [look(connection, job) for job in (fail, later)]
    ran = rota("run", str(fail))
    assert ran.status == 1
    assert 'raise ValueError("no such user")' in ran.err
    assert f"job {fail} fail: its handler raised ValueError: no such user" in ran.out
    assert f"job {later} later: its outcome is Snooze\n" in rota("run", str(later)).out
    assert [look(connection, job) for job in (fail, later)] == before


@rule("M52")
def test_what_a_run_did_is_not_repeated_by_the_next(rota: Here, connection: Connection) -> None:
    job = insert(connection, "mail")
    assert "sending\ncounting\n" in rota("run", str(job)).out
    ran = rota("run", str(job))
    assert "sending" not in ran.out
    assert "counting" not in ran.out
    assert "its handler raised ValueError: after the mail" in ran.out


def test_a_recorded_run_is_an_attempt(rota: Here, connection: Connection) -> None:
    done, failed = insert(connection, "add", '{"a": 1}'), insert(connection, "fail")
    assert f"job {done} add is succeeded" in rota.ok("run", str(done), "--record").out
    ran = rota("run", str(failed), "--record", "--json")
    assert ran.status == 1
    assert (ran.json["status"], ran.json["error_type"]) == ("failed", "ValueError")
    assert look(connection, failed)[:2] == ("failed", 1)
    finish = insert(connection, "finish")
    assert f"job {finish} finish is succeeded" in rota.ok("run", str(finish)).out


@pytest.mark.nightly
@rule("M44", "M52")
def test_of_a_dead_job_a_copy_runs_and_the_dead_one_stays_as_it_is(
    rota: Here, connection: Connection
) -> None:
    job = insert(connection, "mail")
    connection.execute(
        "update rota.job set group_key = 'g', idempotency_key = 'k', meta = '{\"a\": 1}', "
        "schedule = 's', scheduled_for = '2026-01-14 12:00Z' where id = %s",
        [job],
    )
    rota.ok("discard", str(job))
    rota.ok("queues", "pause", "default")
    refused = rota("run", str(job))
    assert f"job {job} is in queue 'default', which is paused" in refused.err
    rota.ok("queues", "resume", "default")
    before = row(connection, job)
    ran = rota("run", str(job))
    assert ran.status == 1 and "sending\ncounting\n" in ran.out
    assert "its handler raised ValueError: after the mail" in ran.out
    copy = connection.execute(
        "select id, status, meta, idempotency_key, group_key, schedule, origin_id from rota.jobs "
        "where id <> %s and scheduled_for is not null",
        [job],
    ).fetchall()
    assert copy == [(copy[0][0], "cancelled", {"a": 1}, None, None, None, job)]
    assert connection.execute("select from rota.schedule_run").fetchall() == []
    assert ran.out.endswith(f"job {job} mail is dead, as before; copy {copy[0][0]} is cancelled\n")
    assert row(connection, job) == before
    assert "sending" not in rota("run", str(job)).out, "what the copy did is recorded"
    new = rota.ok("retry", str(job), "--json").json["jobs"][0]["new_id"]
    again = rota("run", str(new)).out
    assert "sending" not in again and "counting" not in again
    assert rota("run", str(job), "--record").status == 2


@rule("M44")
def test_the_copy_of_a_dead_job_runs_nowhere_else_if_the_command_is_killed(
    rota: Here, connection: Connection
) -> None:
    job = insert(connection, "wait_here")
    rota.ok("discard", str(job))
    before = row(connection, job)
    with rota.start("run", str(job)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.kill()
        process.communicate(timeout=30)
    connection.execute(
        "update rota.job set locked_until = now() - interval '1 s' where status = 'running'"
    )
    rota.ok("work", "--drain")
    assert connection.execute("select status from rota.jobs where id <> %s", [job]).fetchall() == [
        ("dead",)
    ]
    assert row(connection, job) == before


def row(connection: Connection, job: int) -> object:
    """Everything of a job."""
    return connection.execute("select j from rota.jobs j where id = %s", [job]).fetchall()


def test_what_cannot_be_claimed_is_refused(rota: Here, connection: Connection) -> None:
    job = insert(connection, "add", '{"a": 1}')
    rota.ok("run", str(job), "--record")
    status, why = rota("run", str(job)).error
    assert status == 1
    assert why == f"job {job} is succeeded, not queued or failed; nothing was changed"
    status, why = rota("run", "99").error
    assert (status, why.partition(":")[0]) == (2, "no job 99")
    unknown = insert(connection, "nobody")
    assert "unknown job type 'nobody'" in rota("run", str(unknown)).err
    paused = insert(connection, "add", '{"a": 1}')
    rota.ok("queues", "pause", "sums")
    connection.execute("update rota.job set queue = 'sums' where id = %s", [paused])
    assert "is in queue 'sums', which is paused" in rota("run", str(paused)).err


@pytest.mark.system
@pytest.mark.parametrize(
    ("job_type", "number"),
    [("wait", signal.SIGTERM), ("await_", signal.SIGHUP), ("wait", signal.SIGINT)],
)
def test_a_signal_that_ends_the_command_hands_the_job_back(
    rota: Here, connection: Connection, job_type: str, number: signal.Signals
) -> None:
    job = insert(connection, job_type)
    before = look(connection, job)
    with rota.start("run", str(job), hears_ctrl_c=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 1
    assert look(connection, job) == before
