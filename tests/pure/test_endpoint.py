"""What a circuit breaker counts: the endpoint's failures, and never those of a job."""

from __future__ import annotations

import errno
import smtplib
import socket
import urllib.error
from email.message import Message
from http.client import RemoteDisconnected

import pytest

import rota
from rota.model.breaker import EndpointHealth, judge_endpoint
from rota.model.classify import is_endpoint_failure
from rota.model.outcome import Errored, Failed, HandedBack, Succeeded
from rota.model.retry import DEFAULT_RETRY
from rota.model.settle import RetryRules, judge
from tests.support.rules import rule

RULES = RetryRules(3, DEFAULT_RETRY)


def answer(status: int) -> Exception:
    return urllib.error.HTTPError("http://shop", status, "", Message(), None)


class Overridden(ConnectionError):
    """An error that the job type itself classifies."""


ENDPOINTS: list[BaseException] = [
    TimeoutError(), rota.AttemptTimeout(2.0), ConnectionRefusedError(), RemoteDisconnected(""),
    socket.gaierror(), OSError(errno.EHOSTUNREACH, ""), urllib.error.URLError(TimeoutError()),
    answer(500), answer(503), answer(429), smtplib.SMTPServerDisconnected(),
    smtplib.SMTPConnectError(554, b""), smtplib.SMTPResponseException(421, b""),
    ExceptionGroup("both", [ValueError(), TimeoutError()]),
]  # fmt: skip
JOBS: list[BaseException] = [
    ValueError(), KeyError(), rota.PayloadError("t", None, "no"), answer(400), answer(404),
    answer(408), answer(422), smtplib.SMTPResponseException(550, b""),
    smtplib.SMTPResponseException(450, b""), OSError(errno.ENOSPC, ""),
    rota.DatabaseUnavailable("away"), rota.JoinTimeout(7, "running", 2.0),
    ExceptionGroup("both", [ValueError(), KeyError()]),
]  # fmt: skip


@rule("M63")
@pytest.mark.parametrize("error", ENDPOINTS, ids=repr)
def test_the_endpoint_is_at_fault(error: BaseException) -> None:
    assert is_endpoint_failure(error)


@rule("M63")
@pytest.mark.parametrize("error", JOBS, ids=repr)
def test_the_endpoint_is_not_at_fault(error: BaseException) -> None:
    assert not is_endpoint_failure(error)


@rule("M63")
def test_whether_another_attempt_can_help_changes_nothing() -> None:
    rules = RetryRules(3, DEFAULT_RETRY, fatal_on=(Overridden, 503), retry_on=(404, ValueError))
    assert judge(Overridden(), rules).is_endpoint
    assert judge(answer(503), rules).is_endpoint
    assert not judge(answer(404), rules).is_endpoint
    assert not judge(ValueError(), rules).is_endpoint


def raise_from(outcome: rota.Retry | rota.Dead, error: BaseException) -> rota.Retry | rota.Dead:
    outcome.__cause__ = error
    return outcome


@rule("M63")
def test_an_outcome_counts_by_its_cause_and_without_one_says_nothing() -> None:
    for outcome in (rota.Retry("later"), rota.Dead("never")):
        assert judge_endpoint(outcome, RULES) == (EndpointHealth.UNKNOWN, None)
        failed, reason = judge_endpoint(raise_from(outcome, answer(503)), RULES)
        assert failed is EndpointHealth.FAILS
        assert reason is not None
        assert "HTTP Error 503" in reason
        assert judge_endpoint(raise_from(outcome, ValueError()), RULES)[0] is EndpointHealth.UNKNOWN


@rule("M63")
def test_a_failure_that_another_process_judged_counts_alike() -> None:
    failed = Failed(judge(TimeoutError("no answer"), RULES))
    assert judge_endpoint(failed, RULES) == (EndpointHealth.FAILS, "TimeoutError: no answer")
    assert judge_endpoint(Errored(ValueError()), RULES)[0] is EndpointHealth.UNKNOWN


@rule("M63")
def test_a_success_says_that_it_serves_and_a_job_that_did_not_run_says_nothing() -> None:
    assert judge_endpoint(Succeeded(None), RULES)[0] is EndpointHealth.SERVES
    for end in (HandedBack("no slot"), rota.Snooze("1m"), rota.Cancel()):
        assert judge_endpoint(end, RULES)[0] is EndpointHealth.UNKNOWN
