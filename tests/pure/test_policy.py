from __future__ import annotations

import math
import smtplib
import socket
import ssl
from collections.abc import Callable
from email.message import Message
from typing import NoReturn
from urllib.error import HTTPError

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.errors import AttemptTimeout, DatabaseUnavailable, PayloadError, UsageError
from rota.model.classify import Verdict, classify
from rota.model.failure import error_type, message, stack
from rota.model.retry import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_RETRY,
    Delays,
    Exponential,
    Fixed,
    Linear,
    Quadratic,
    RetryPolicy,
)
from tests.support.rules import rule

delays = st.integers(1, 86400).map(lambda number: f"{number}s")
jitters = st.floats(0, 1, exclude_max=True)
policies = st.one_of(
    st.builds(Fixed, delays, jitter=jitters),
    st.builds(Linear, delays, jitter=jitters),
    st.builds(Quadratic, delays, jitter=jitters),
    st.builds(Exponential, delays, cap=st.none() | st.just("2d"), jitter=jitters),
    st.lists(delays, min_size=1, max_size=8).flatmap(
        lambda steps: jitters.map(lambda jitter: Delays(*steps, jitter=jitter))
    ),
)
ids = st.integers(1, 2**63 - 1)


@rule("M40")
@pytest.mark.parametrize(
    ("policy", "plan_s"),
    [
        (Fixed("30s"), (30, 30, 30, 30)),
        (Linear("10s"), (10, 20, 30, 40)),
        (Quadratic(), (10, 40, 90, 160)),
        (Exponential("10s", cap=None), (10, 20, 40, 80)),
        (Exponential("10s", cap="30s"), (10, 20, 30, 30)),
        (Delays("1m", "5m", "30m"), (60, 300, 1800, 1800)),
    ],
)
def test_each_kind_of_policy_has_its_plan(policy: RetryPolicy, plan_s: tuple[float, ...]) -> None:
    assert policy.plan_s(5) == plan_s


@rule("M40")
@given(policies, st.integers(1, 10**6), ids, st.integers(0, 2**31))
@example(Fixed("1s", jitter=0.5), 1, 1, 1)
def test_a_retry_always_lies_at_least_a_second_ahead_and_near_its_plan(
    policy: RetryPolicy, attempt: int, job_id: int, claims: int
) -> None:
    planned_s = policy.delay_s(attempt)
    delay_s = policy.delay_with_jitter_s(attempt, job_id, claims)
    assert 1 <= planned_s <= 365 * 86400
    assert delay_s >= 1
    assert math.isfinite(delay_s)
    assert (
        max(1, planned_s * (1 - policy.jitter)) - 1e-6
        <= delay_s
        <= planned_s * (1 + policy.jitter) + 1e-6
    )


@rule("M40")
def test_what_was_promised_of_the_default_and_of_a_jitter_never_changes() -> None:
    assert Exponential() == Exponential("10s", cap="1h", jitter=0.25) == DEFAULT_RETRY
    assert DEFAULT_MAX_ATTEMPTS == 10
    # Literals, so that another release, process or Python that gave other values would be seen.
    policy = Fixed("100s")
    found = [
        round(policy.delay_with_jitter_s(1, job_id, claims), 6)
        for job_id, claims in [(1, 1), (1, 2), (2, 1), (2**63 - 1, 7)]
    ]
    assert found == [83.800628, 86.788483, 97.953366, 82.083807]


@given(policies, st.integers(1, 10_000))
def test_the_plan_is_the_delays_and_at_most_a_hundred(
    policy: RetryPolicy, max_attempts: int
) -> None:
    plan_s = policy.plan_s(max_attempts)
    assert len(plan_s) == min(max_attempts - 1, 100)
    assert all(delay_s == policy.delay_s(attempt) for attempt, delay_s in enumerate(plan_s, 1))


def test_of_a_long_plan_people_see_the_first_delay_the_last_and_the_total() -> None:
    assert DEFAULT_RETRY.in_words(10) == "10 s … 43 min, dead after 85 min"
    assert DEFAULT_RETRY.in_words(3) == "10 s, 20 s, dead after 30 s"


def test_the_jitter_spreads_evenly_over_jobs_and_over_claims() -> None:
    policy = Fixed("100s")
    for delays_s in (
        [policy.delay_with_jitter_s(1, job_id, 1) for job_id in range(1, 10_001)],
        [policy.delay_with_jitter_s(1, 42, claims) for claims in range(1, 10_001)],
    ):
        tenths = [0] * 10
        for delay_s in delays_s:
            tenths[int((delay_s - 75) / 5)] += 1
        assert all(850 <= count <= 1150 for count in tenths), tenths


def test_a_policy_that_cannot_work_is_refused_when_it_is_declared() -> None:
    declarations: list[Callable[[], object]] = [
        lambda: Fixed("0.5s"),
        lambda: Fixed("366d"),
        Delays,
        lambda: Delays("1m", "nonsense"),
        lambda: Exponential("1h", cap="10s"),
        lambda: Fixed("5s", jitter=1.0),
        lambda: Fixed("5s", jitter=-0.1),
        lambda: Fixed("5s", jitter=math.nan),
        lambda: Fixed("5s", jitter=True),
    ]
    for declare in declarations:
        with pytest.raises(UsageError):
            declare()


# Classification


class Answered(Exception):
    def __init__(self, **fields: object) -> None:
        super().__init__("the other side answered")
        self.__dict__.update(fields)


class Response:
    def __init__(self, status_code: object) -> None:
        self.status_code = status_code


class Unreadable(Exception):
    @property
    def status_code(self) -> NoReturn:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


def named(name: str, *bases: type[BaseException]) -> BaseException:
    """An error of a library that is not installed here, known by its name alone."""
    error: BaseException = type(name, bases or (Exception,), {"__module__": "elsewhere"})(
        "it went wrong"
    )
    return error


@rule("M41")
@pytest.mark.parametrize(
    ("code", "verdict"),
    [(code, "transient") for code in (408, 425, 429, 500, 502, 503, 504, 599)]
    + [(code, "fatal") for code in (400, 401, 403, 404, 405, 409, 410, 413, 418, 422, 450, 451)],
)
def test_an_http_status_decides_wherever_a_library_keeps_it(code: int, verdict: str) -> None:
    for error in (
        Answered(status_code=code),
        Answered(response=Response(code)),
        Answered(status=code),
        HTTPError("/", code, "", Message(), None),
    ):
        seen = classify(error)
        assert (seen.verdict, seen.rule, seen.response_code) == (verdict, f"status {code}", code)
        if isinstance(error, HTTPError):
            error.close()


@rule("M41")
@pytest.mark.parametrize(
    ("code", "verdict"),
    [(421, "transient"), (450, "transient"), (451, "transient"), (550, "fatal"), (554, "fatal")],
)
def test_an_smtp_code_means_later_for_4xx_and_never_for_5xx(code: int, verdict: str) -> None:
    seen = classify(smtplib.SMTPResponseException(code, "no"))
    assert (seen.verdict, seen.rule, seen.response_code) == (verdict, f"smtp {code}", code)


@rule("M41")
def test_a_date_of_retry_after_is_read_by_the_date_of_its_answer_otherwise_by_our_clock() -> None:
    """By our clock it would be years ago."""
    headers = {
        "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
        "Retry-After": "Wed, 21 Oct 2015 07:30:00 GMT",
    }
    answered = Answered(status_code=429, headers=headers)
    assert classify(answered).retry_after_s == 120
    for date in ("", "yesterday"):
        headers["Date"] = date
        assert classify(answered).retry_after_s is None
        headers["Retry-After"] = "Fri, 31 Dec 9999 23:59:59 GMT"
        assert classify(answered).retry_after_s == 86_400
        headers["Retry-After"] = "Wed, 21 Oct 2015 07:30:00 GMT"


@rule("M41", "M63")
@pytest.mark.parametrize(
    "error",
    [smtplib.SMTPResponseException(code, "no") for code in (530, 534, 535, 538)]
    + [smtplib.SMTPSenderRefused(530, b"log in first", "a@b")]
    + [smtplib.SMTPAuthenticationError(code, b"no") for code in (535, 550)]
    + [smtplib.SMTPConnectError(554, "blocked"), smtplib.SMTPHeloError(554, "blocked")],
    ids=repr,
)
def test_a_server_that_refuses_the_login_or_the_connection_is_tried_again_and_counts(
    error: smtplib.SMTPResponseException,
) -> None:
    seen = classify(error)
    assert (seen.verdict, seen.rule) == (Verdict.TRANSIENT, f"smtp {error.smtp_code}")
    assert seen.is_endpoint
    of_message = classify(smtplib.SMTPDataError(554, "spam"))
    assert (of_message.verdict, of_message.is_endpoint) == (Verdict.FATAL, False)


@rule("M41")
def test_a_bad_address_fails_at_once_unless_another_of_the_same_mail_may_work_later() -> None:
    assert (
        classify(smtplib.SMTPRecipientsRefused({"a@b": (550, b"unknown")})).verdict is Verdict.FATAL
    )
    assert (
        classify(
            smtplib.SMTPRecipientsRefused({"a@b": (550, b"unknown"), "c@d": (451, b"later")})
        ).verdict
        is Verdict.TRANSIENT
    )


@rule("M41")
def test_the_codes_of_aiosmtplib_are_read_as_those_of_smtplib() -> None:
    answered = type("SMTPResponseException", (Exception,), {})
    unknown, later = answered(), answered()
    unknown.code, later.code = 550, 451
    several = type("SMTPRecipientsRefused", (Exception,), {})()
    several.recipients = [unknown]
    seen = classify(unknown)
    assert (seen.verdict, seen.rule) == (Verdict.FATAL, "smtp 550")
    assert classify(later).verdict is Verdict.TRANSIENT
    assert classify(several).verdict is Verdict.FATAL
    several.recipients = [unknown, later]
    assert classify(several).verdict is Verdict.TRANSIENT


@rule("M41")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), "timeout"),
        (AttemptTimeout(20), "timeout"),
        (named("ReadTimeout", type("TimeoutException", (Exception,), {})), "timeout"),
        (psycopg.errors.QueryCanceled(), "timeout"),
        (ConnectionRefusedError(), "connection"),
        (BrokenPipeError(), "connection"),
        (OSError(113, "No route to host"), "connection"),
        (socket.gaierror(-2, "Name or service not known"), "connection"),
        (ssl.SSLError("handshake failure"), "connection"),
        (smtplib.SMTPServerDisconnected("gone"), "connection"),
        (psycopg.OperationalError("server closed the connection"), "connection"),
        (DatabaseUnavailable(), "connection"),
        (named("ConnectError"), "connection"),
        (
            named("ServerDisconnectedError", type("ClientConnectionError", (Exception,), {})),
            "connection",
        ),
        (FileNotFoundError(2, "No such file"), "unknown error"),
        (ValueError("?"), "unknown error"),
        (KeyboardInterrupt(), "unknown error"),
        (Answered(status_code=302), "unknown error"),
    ],
)
def test_timeouts_connection_errors_and_unknown_errors_are_tried_again(
    error: BaseException, expected: str
) -> None:
    seen = classify(error)
    assert (seen.verdict, seen.rule) == (Verdict.TRANSIENT, expected)


@rule("M41")
def test_an_invalid_payload_fails_at_once() -> None:
    assert classify(PayloadError("t", "day", "missing")).verdict is Verdict.FATAL


@pytest.mark.parametrize("code", [True, "404", 4, 1000, None, 404.0, -1])
def test_what_is_no_status_code_is_not_taken_for_one(code: object) -> None:
    assert classify(Answered(status_code=code)).response_code is None


def test_an_error_whose_attributes_raise_is_still_classified() -> None:
    assert classify(Unreadable()).rule == "unknown error"


@rule("M41")
def test_the_nearest_class_decides_and_fatal_on_wins_a_tie() -> None:
    error = ConnectionRefusedError("no")
    assert classify(error, fatal_on=(OSError,)).rule == "fatal_on OSError"
    assert (
        classify(error, retry_on=(ConnectionError,), fatal_on=(OSError,)).rule
        == "retry_on ConnectionError"
    )
    assert (
        classify(error, retry_on=(OSError,), fatal_on=(ConnectionError,)).rule
        == "fatal_on ConnectionError"
    )
    assert classify(error, retry_on=(OSError,), fatal_on=(OSError,)).rule == "fatal_on OSError"


@rule("M41")
def test_a_status_code_can_be_named_beside_classes_and_decides_before_them() -> None:
    for code, retry_on, fatal_on, decides in (
        (404, (404,), (), "retry_on 404"),
        (503, (), (503,), "fatal_on 503"),
        (404, (404,), (404,), "fatal_on 404"),
        (404, (404,), (Exception,), "retry_on 404"),
        (404, (409, Exception), (), "retry_on Exception"),
    ):
        seen = classify(Answered(status_code=code), retry_on=retry_on, fatal_on=fatal_on)
        assert seen.rule == decides


@rule("M41")
def test_what_the_type_declares_comes_before_the_defaults_and_the_code_is_kept() -> None:
    seen = classify(Answered(status_code=404), retry_on=(Answered,))
    assert (seen.verdict, seen.response_code) == (Verdict.TRANSIENT, 404)
    assert (
        classify(PayloadError("t", None, "no"), retry_on=(PayloadError,)).verdict
        is Verdict.TRANSIENT
    )
    assert classify(KeyError("x"), fatal_on=(LookupError,)).rule == "fatal_on LookupError"


def test_a_group_is_fatal_only_when_all_its_errors_are() -> None:
    gone, busy = Answered(status_code=410), Answered(status_code=503)
    assert (
        classify(ExceptionGroup("both", [gone, ExceptionGroup("nested", [gone])])).rule
        == "status 410"
    )
    assert (
        classify(ExceptionGroup("mixed", [gone, ExceptionGroup("nested", [busy])])).rule
        == "status 503"
    )


def test_a_group_may_be_nested_very_deep() -> None:
    group: Exception = ValueError("inside")
    for _ in range(50_000):
        group = ExceptionGroup("", [group])
    assert classify(group).rule == "unknown error"
    while isinstance(group, ExceptionGroup):  # take it apart here: freeing it at once recurses in C
        group = group.exceptions[0]


@rule("M41")
def test_an_error_that_is_known_by_its_class_alone_may_name_its_rule() -> None:
    class Told(ConnectionError):
        rota_rule = "the bank is\nclosed"

    class Later(smtplib.SMTPResponseException, Told):
        pass

    seen = classify(Told())
    assert (seen.verdict, seen.rule, seen.is_endpoint) == ("transient", "the bank is closed", True)
    assert classify(Later(450, "later")).rule == "smtp 450"
    assert classify(Told(), fatal_on=(Told,)).rule == "fatal_on Told"


# What is kept of an error


@rule("M43")
def test_errors_are_grouped_by_their_qualified_class() -> None:
    assert error_type(ValueError()) == "ValueError"
    assert error_type(psycopg.errors.QueryCanceled()) == "psycopg.errors.QueryCanceled"


@rule("M43", "M45")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "cannot reach postgresql://app:s3cret@db.example.com/app",
            "cannot reach postgresql://***@db.example.com/app",
        ),
        ("amqp://app:p/w:x@broker", "amqp://***@broker"),
        ("redis://:s3cret@cache:6379/0", "redis://***@cache:6379/0"),
        (
            "https://token@host/x and https://u:p@ss@host/y",
            "https://***@host/x and https://***@host/y",
        ),
        ("GET http://host:8080/a?mail=a@b.example", "GET http://host:8080/a?mail=a@b.example"),
        ("two\nlines\tand \x00 a NUL\x1b[31m", "two lines and a NUL [31m"),
        ("half a \ud83d pair", "half a \ufffd pair"),
        ("", "ValueError"),
    ],
)
def test_a_message_is_one_line_that_may_be_shown(text: str, shown: str) -> None:
    assert message(ValueError(text)) == shown


@rule("M43")
@given(st.text(st.characters(codec=None)), st.integers(1, 600))
def test_a_message_is_short_and_can_be_stored_whatever_the_text(text: str, limit: int) -> None:
    shown = message(ValueError(text), limit)
    assert 0 < len(shown) <= limit
    assert not any(ord(sign) < 32 or ord(sign) == 127 for sign in shown)
    shown.encode()


def test_a_message_whose_text_cannot_be_made_says_that() -> None:
    assert "cannot be shown" in message(Unreadable())


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - a test wants it with its traceback
        return caught


@rule("M43", "M45")
def test_a_stack_names_the_line_and_hides_credentials() -> None:
    text = stack(raised(ValueError("postgresql://app:s3cret@db \0 \ud83d")))
    assert "in raised" in text
    assert "s3cret" not in text
    assert "\0" not in text
    text.encode()


def test_a_stack_can_be_made_of_any_error() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("at the bottom")

    chain: BaseException = ValueError("first")
    for _ in range(5000):
        following = ValueError("next")
        following.__cause__ = chain
        chain = following
    loop = ValueError("itself")
    loop.__cause__ = loop
    with pytest.raises(ValueError, match="bottom") as bottom:
        deep(500)
    for error in (chain, loop, bottom.value, raised(Unreadable())):
        text = stack(error)
        assert 0 < len(text.encode()) <= 16384
    while chain.__cause__ is not None:  # take it apart here: freeing it at once recurses in C
        chain, chain.__cause__ = chain.__cause__, None


@rule("M43")
@given(st.integers(0, 300))
def test_a_stack_is_never_longer_than_its_limit(limit_bytes: int) -> None:
    text = stack(raised(ValueError("€" * 200 + "the end")), max(5, limit_bytes))
    assert len(text.encode()) <= max(5, limit_bytes)
    assert limit_bytes < 50 or (text.startswith("Traceback") and text.endswith("the end\n"))
