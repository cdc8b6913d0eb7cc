"""What becomes of a job whose handler was stopped because its worker went down."""

from __future__ import annotations

from typing import Any

import rota
from rota.model.job import Status
from rota.model.outcome import Interrupted
from rota.model.settle import RetryRules, Transition, settle
from tests.support.job import make_job
from tests.support.rules import rule

RULES = RetryRules(3, rota.Fixed("7s", jitter=0))
END = Interrupted("the worker went down while the handler ran")


@rule("M33", "M83")
def test_the_first_time_it_comes_back_uncharged_and_counts_as_a_loss() -> None:
    decided = settle(make_job(), END, RULES)
    assert (decided.status, decided.charged, decided.loss, decided.delay_s, decided.failure) == (
        Status.QUEUED,
        False,
        True,
        None,
        None,
    )


def begun(rules: RetryRules = RULES, **fields: Any) -> Transition:
    """What becomes of a job with these fields, whose start is stored first."""
    return settle(make_job(**fields), END, rules, must_record_start=True)


@rule("M33", "M83")
def test_from_then_on_the_attempt_counts() -> None:
    decided = begun(losses=1, attempts=2)
    assert (decided.status, decided.charged, decided.loss, decided.delay_s) == (
        Status.FAILED,
        True,
        True,
        7.0,
    )
    assert decided.failure is not None
    assert decided.failure.error_type == "Interrupted"
    assert begun(losses=2, attempts=3).status is Status.DEAD


@rule("M33", "M83")
def test_a_job_that_may_begin_once_only_is_dead_when_it_was_interrupted() -> None:
    assert begun(max_attempts=1).status is Status.DEAD
    once = RetryRules(3, rota.Fixed("7s"), dead_if_lost=True)
    assert begun(once).status is Status.DEAD
