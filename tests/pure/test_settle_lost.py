"""What becomes of a job whose handler was stopped because its worker went down."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import rota
from rota.model.job import Job, Status
from rota.model.outcome import Interrupted
from rota.model.settle import RetryRules, settle
from tests.support.rules import rule

RULES = RetryRules(3, rota.Fixed("7s", jitter=0))
END = Interrupted("the worker went down while the handler ran")


def job(**facts: Any) -> Job:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given: dict[str, Any] = {
        "id": 1, "origin_id": 1, "queue": "q", "job_type": "t", "payload_json": "{}",
        "payload_version": None, "priority": 0, "run_at": at,
        "expires_at": None, "attempts": 1, "max_attempts": None, "claims": 1,
        "idempotency_key": None, "meta_json": None, "created_at": at,
    }  # fmt: skip
    return Job(**given | facts)


@rule("M33", "M83")
def test_the_first_time_it_comes_back_uncharged_and_counts_as_a_loss() -> None:
    decided = settle(job(), END, RULES)
    assert (decided.status, decided.charged, decided.loss, decided.delay_s, decided.failure) == (
        Status.QUEUED,
        False,
        True,
        None,
        None,
    )


@rule("M33", "M83")
def test_from_then_on_the_attempt_counts() -> None:
    decided = settle(job(losses=1, attempts=2), END, RULES, must_record_start=True)
    assert (decided.status, decided.charged, decided.loss, decided.delay_s) == (
        Status.FAILED,
        True,
        True,
        7.0,
    )
    assert decided.failure is not None
    assert decided.failure.error_type == "Interrupted"
    assert (
        settle(job(losses=2, attempts=3), END, RULES, must_record_start=True).status is Status.DEAD
    )


@rule("M33", "M83")
def test_a_job_that_may_begin_once_only_is_dead_when_it_was_interrupted() -> None:
    assert settle(job(max_attempts=1), END, RULES, must_record_start=True).status is Status.DEAD
    assert (
        settle(
            job(), END, RetryRules(3, rota.Fixed("7s"), dead_if_lost=True), must_record_start=True
        ).status
        is Status.DEAD
    )
