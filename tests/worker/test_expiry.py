"""Jobs that expire: noticed by any worker that is up, by the next drain, and by the worker that
claims one too late."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import rota
from rota.model.job import Status
from rota.model.settle import settle
from rota.observe.events import JobDead
from rota.upkeep.expirer import Expirer
from rota.worker.attempt import Attempt
from tests.support.clock import ManualClock
from tests.support.job import make_job
from tests.support.rules import rule
from tests.worker.alone import give, lone_executor
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, status


@rule("M36")
async def test_a_worker_that_is_up_ends_jobs_that_it_would_never_claim(
    database: str, connection: Connection, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Expirer, "asked_every_s", 0.05)
    async with Hand(database, jobs) as hand:
        job = put(connection, "stranger")
        connection.execute("update rota.job set expires_at = rota.clock() + interval '0.3 s'")
        dead = await hand.heard(JobDead, job=job)
    assert (dead.failure.error_type, dead.failure.verdict, dead.failure.verdict_rule) == (
        "Expired",
        "fatal",
        "expired",
    )
    assert dead.failure.message.endswith(": no live worker knew its type 'stranger'")
    assert (dead.job_type, dead.attempt, dead.claim, dead.worker) == ("stranger", 1, 0, hand.name)
    assert status(connection, job) == "dead"


@rule("M36", "M43")
@pytest.mark.parametrize(
    ("due_s", "expires_s", "held_s", "said"),
    [
        (
            -10,
            2,
            5,
            "it was claimed in time, but its worker's slots were busy until 3.0 s too late",
        ),
        (
            -10,
            -4,
            1,
            "it was due at 2026-01-01 11:59:50+00:00 and would have started 5.0 s too late: "
            "the workers were busy, or none was alive",
        ),
        (-3, -4, 1, "it was not due before 2026-01-01 11:59:57+00:00"),
        (
            -10,
            0,
            0,
            "it was due at 2026-01-01 11:59:50+00:00 and would have started 0.0 s too late: "
            "the workers were busy, or none was alive",
        ),
        (-10, 2, 1, None),
        (-10, None, 1, None),
    ],
)
async def test_a_job_whose_turn_comes_too_late_never_starts_and_says_why(
    jobs: rota.Jobs,
    due_s: float,
    expires_s: float | None,
    held_s: float,
    said: str | None,
) -> None:
    clock = ManualClock()
    executor, others = lone_executor(clock=clock)
    claimed = datetime(2026, 1, 1, 12, tzinfo=UTC)
    expires_at = None if expires_s is None else claimed + timedelta(seconds=expires_s)
    job = make_job(
        job_type="quick", run_at=claimed + timedelta(seconds=due_s), expires_at=expires_at,
        created_at=claimed, started_at=claimed,
    )  # fmt: skip
    attempt = Attempt(job, jobs.types["quick"]._declaration, clock.now - held_s, 60.0)
    give(executor, attempt)
    assert await asyncio.wait_for(others.ended.get(), 30) is attempt
    await executor.close()
    assert attempt.outcome is not None
    transition = settle(job, attempt.outcome, jobs.types["quick"]._declaration.rules)
    if said is None:
        assert (transition.verb, transition.failure) == ("succeed", None)
        return
    assert transition.failure is not None
    assert (attempt.began_at, transition.verb, transition.charged) == (None, "give_up", False)
    text = f"not started before expires_at ({expires_at}): {said}"
    assert transition.failure.message == text
    rules = replace(jobs.types["quick"]._declaration.rules, drop_if_expired=True)
    dropped = settle(job, attempt.outcome, rules)
    assert (dropped.verb, dropped.status, dropped.charged) == ("drop", Status.CANCELLED, False)
    assert (dropped.reason, dropped.failure) == (f"expired: {text}", None)
