"""Which errors prove that an effect did not happen, and what an answer about one means. Most errors
come from real servers on the loopback."""

from __future__ import annotations

import asyncio
import errno
import smtplib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

import rota
from rota.errors import AttemptCancelled
from rota.model.effect import EffectAnswer, EffectCall, find_obstacle, proves_not_done
from tests.pure.test_policy import named
from tests.support.rules import rule
from tests.support.smtp import DROP, speaking
from tests.support.web import serving

TIMEOUT_S = 30


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that no server listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def error_of(call: Callable[[], object]) -> BaseException:
    """The error that a call ends with."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - each client has classes of its own
        if isinstance(error, HTTPError):
            error.close()
        return error
    raise AssertionError("it was not refused")


def caused(error: BaseException, cause: BaseException | None) -> BaseException:
    """What `raise error from cause` raises."""
    error.__cause__ = cause
    return error


def with_facts(error: BaseException, **facts: Any) -> BaseException:
    for name, fact in facts.items():
        setattr(error, name, fact)
    return error


# Connections


@rule("M52")
def test_a_refused_connection_proves_that_nothing_happened() -> None:
    with closed_port() as port:
        calls: list[Callable[[], object]] = [
            lambda: socket.create_connection(("127.0.0.1", port), TIMEOUT_S),
            lambda: urlopen(Request(f"http://127.0.0.1:{port}/", b"to=42"), timeout=TIMEOUT_S),
            lambda: smtplib.SMTP("127.0.0.1", port, timeout=TIMEOUT_S),
            lambda: asyncio.run(asyncio.open_connection("127.0.0.1", port)),
        ]
        for call in calls:
            error = error_of(call)
            assert proves_not_done(error), repr(error)


@rule("M52")
def test_a_name_that_is_not_found_proves_it() -> None:
    error = error_of(lambda: socket.getaddrinfo("no.name", 80, flags=socket.AI_NUMERICHOST))
    assert isinstance(error, socket.gaierror)
    assert proves_not_done(error)
    assert proves_not_done(URLError(error))


@rule("M52")
@pytest.mark.parametrize(
    "error",
    [
        named("ConnectError"),  # httpx
        named("ConnectTimeout"),
        named("PoolTimeout"),
        named("ClientConnectorError"),  # aiohttp
        named("ConnectionTimeoutError"),
        named("NewConnectionError"),  # urllib3
        named("NameResolutionError"),
        named("EndpointConnectionError"),  # botocore
        named("ConnectTimeoutError"),
        named("ClientConnectorDNSError", type("ClientConnectorError", (OSError,), {})),
        OSError(errno.ECONNREFUSED, "refused"),
        smtplib.SMTPConnectError(421, "too busy"),
        smtplib.SMTPConnectError(-1, "no greeting"),
    ],
    ids=repr,
)
def test_a_client_that_says_that_it_never_connected_is_believed(error: BaseException) -> None:
    assert proves_not_done(error)


@rule("M52")
def test_of_requests_the_reason_within_its_error_decides() -> None:
    reason = named("NewConnectionError")
    inner = with_facts(named("MaxRetryError"), reason=reason)
    kind = type("ConnectionError", (OSError,), {})
    assert proves_not_done(kind(inner))
    assert not proves_not_done(kind(with_facts(named("MaxRetryError"), reason=named("ReadError"))))
    assert not proves_not_done(kind("aborted"))
    assert not proves_not_done(kind())


@rule("M52")
@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        BrokenPipeError(errno.EPIPE, "broken"),
        URLError(TimeoutError()),
        URLError(ConnectionResetError(errno.ECONNRESET, "reset")),
        URLError("unknown url type: ftq"),
        named("ReadTimeout"),
        named("RemoteProtocolError"),
        named("ServerDisconnectedError"),
        named("ReadTimeoutError"),
        named("MaxRetryError"),
        smtplib.SMTPServerDisconnected("gone"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        ValueError("404"),
        Exception(),
    ],
    ids=repr,
)
def test_an_error_that_may_have_come_after_the_request_proves_nothing(error: BaseException) -> None:
    assert not proves_not_done(error)


@rule("M52")
def test_a_server_that_takes_the_request_and_hangs_up_proves_nothing() -> None:
    with speaking({"POST": DROP}) as server:
        url = f"http://127.0.0.1:{server.port}/"
        error = error_of(lambda: urlopen(url, b"to=42", TIMEOUT_S))
        assert not proves_not_done(error), repr(error)
    with speaking({"hello": DROP}) as server:
        error = error_of(lambda: smtplib.SMTP("127.0.0.1", server.port, timeout=TIMEOUT_S))
        assert not proves_not_done(error), repr(error)


# Answers


@rule("M52")
@pytest.mark.parametrize(
    ("status", "proves"),
    [(400, True), (404, True), (409, True), (429, True), (503, True),
     (500, False), (502, False), (504, False), (304, False)],
)  # fmt: skip
def test_of_http_a_4xx_and_503_are_a_refusal(status: int, proves: bool) -> None:
    with serving() as provider:
        provider.status = status
        error = error_of(lambda: urlopen(provider.url, b"to=42", TIMEOUT_S))
    assert proves_not_done(error) is proves, repr(error)
    answered = SimpleNamespace(status_code=status, history=[])
    assert proves_not_done(with_facts(named("HTTPStatusError"), response=answered)) is proves
    assert proves_not_done(with_facts(named("ClientResponseError"), status=status)) is proves


@rule("M52")
def test_an_answer_to_which_the_client_was_sent_proves_nothing_of_the_first_request() -> None:
    with serving() as elsewhere, serving() as provider, closed_port() as port:
        elsewhere.status = 404
        provider.status = 302
        for location in (elsewhere.url, f"http://127.0.0.1:{port}/"):
            provider.headers["Location"] = location
            error = error_of(lambda: urlopen(provider.url, b"to=42", TIMEOUT_S))
            assert not proves_not_done(error), repr(error)
            assert proves_not_done(error, (type(error),))
    first = SimpleNamespace(status_code=302)
    answered = SimpleNamespace(status_code=404, history=[first])
    assert not proves_not_done(with_facts(named("HTTPStatusError"), response=answered))
    assert not proves_not_done(
        with_facts(named("ClientResponseError"), status=404, history=(first,))
    )


def send(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, "here", TIMEOUT_S) as server:
        server.sendmail("shop@example.org", ["ann@example.org"], "Subject: hello\r\n\r\n")


@rule("M52")
@pytest.mark.parametrize(
    ("answers", "proves"),
    [
        ({"hello": "554 not here"}, True),
        ({"hello": "421 too busy"}, True),
        ({"MAIL": "451 later"}, True),
        ({"RCPT": "451 later"}, True),
        ({"RCPT": "550 unknown"}, True),
        ({"DATA": "550 no"}, True),
        ({".": "451 later"}, True),
        ({".": "554 spam"}, True),
        ({".": "251 accepted"}, False),
        ({".": DROP}, False),
        ({"QUIT": "421 too late"}, False),
        ({"QUIT": "550 no"}, False),
    ],
    ids=repr,
)
def test_of_smtp_a_4xx_and_5xx_are_a_refusal_but_not_of_quit(
    answers: dict[str, str], proves: bool
) -> None:
    with speaking(answers) as server:
        error = error_of(lambda: send(server.port))
    assert proves_not_done(error) is proves, repr(error)


@rule("M52")
def test_the_errors_of_aiosmtplib_have_their_codes_under_another_name() -> None:
    base = type("SMTPResponseException", (Exception,), {})
    data = type("SMTPDataError", (base,), {})
    recipient = with_facts(type("SMTPRecipientRefused", (base,), {})(), code=550)
    refused = type("SMTPRecipientsRefused", (Exception,), {})
    assert proves_not_done(with_facts(data(), code=554))
    assert not proves_not_done(with_facts(data(), code=250))
    assert not proves_not_done(with_facts(base(), code=550))  # of QUIT
    assert proves_not_done(recipient)
    assert proves_not_done(with_facts(refused(), recipients=[recipient]))
    assert not proves_not_done(with_facts(refused(), recipients=[]))


# What the handler says


@rule("M52")
def test_an_error_that_is_named_safe_proves_it_by_class_or_code() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, "reset")
    failed = HTTPError("/", 500, "", Message(), None)
    assert not proves_not_done(reset)
    assert proves_not_done(reset, (ConnectionResetError,))
    assert proves_not_done(reset, (OSError,))
    assert not proves_not_done(reset, (ValueError, 500))
    assert proves_not_done(failed, (500,))
    assert not proves_not_done(failed, (502,))
    assert proves_not_done(smtplib.SMTPResponseException(421, "QUIT"), (421,))
    failed.close()


@rule("M52")
def test_an_outcome_proves_what_the_error_proves_from_which_it_is_raised() -> None:
    refused, reset = ConnectionRefusedError(), ConnectionResetError()
    for outcome in (rota.Retry("later"), rota.Snooze("1m"), rota.Dead("no"), rota.Cancel("no")):
        assert not proves_not_done(outcome)
        assert proves_not_done(caused(outcome, refused))
        assert not proves_not_done(caused(outcome, reset))
        assert proves_not_done(outcome, (ConnectionResetError,))
        assert proves_not_done(caused(outcome, None), (type(outcome),))
        assert proves_not_done(outcome, (BaseException,))


@rule("M52")
def test_another_error_proves_nothing_whatever_it_was_raised_from() -> None:
    assert not proves_not_done(caused(RuntimeError("not sent"), ConnectionRefusedError()))
    during = RuntimeError("not sent")
    during.__context__ = ConnectionRefusedError()
    assert not proves_not_done(during)
    second = caused(rota.Retry("later"), caused(RuntimeError("no"), ConnectionRefusedError()))
    assert not proves_not_done(second)


class Hostile(Exception):
    """A foreign error whose own code fails."""

    @property
    def response(self) -> object:
        raise RuntimeError("not read yet")

    history = response


@rule("M52")
def test_an_error_that_cannot_be_read_proves_nothing() -> None:
    assert not proves_not_done(Hostile())


@rule("M52")
def test_a_group_of_refusals_proves_nothing_unless_it_is_safe() -> None:
    """A task group cancels the calls beside the one that failed, and does not tell of them."""
    refused = ExceptionGroup("", [ConnectionRefusedError()])
    assert not proves_not_done(refused)
    assert not proves_not_done(refused, (ConnectionRefusedError,))
    assert proves_not_done(refused, (ExceptionGroup,))


# What an answer means


def asked(**facts: Any) -> EffectCall:
    given = {"verb": "intend", "job": 7, "claims": 1, "entry": 1, "key": "mail:1"}
    return EffectCall(**{**given, "place": None, "if_uncertain": "dead", **facts})


@rule("M52")
@pytest.mark.parametrize("state", ["begun", "done", "skip", "ended"])
def test_an_answer_that_hinders_nothing_is_no_obstacle(state: Any) -> None:
    assert find_obstacle(asked(), EffectAnswer(state)) is None


@rule("M32")
def test_an_attempt_that_lost_its_job_is_cancelled_at_an_effect() -> None:
    obstacle = find_obstacle(asked(), EffectAnswer("lost"))
    assert isinstance(obstacle, AttemptCancelled)
    assert "effect 'mail:1'" in str(obstacle)


@rule("M52")
@pytest.mark.parametrize(("age_s", "after_s"), [(0.0, 1.0), (7.5, 7.5), (4000.0, 60.0)])
def test_a_job_waits_for_another_as_long_as_that_one_has_been_at_it(
    age_s: float, after_s: float
) -> None:
    obstacle = find_obstacle(asked(), EffectAnswer("held", holder=3, age_s=age_s))
    assert isinstance(obstacle, rota.Snooze)
    assert obstacle.after_s == after_s
    assert "job 3 is at effect 'mail:1'" in str(obstacle)


@rule("M52")
def test_what_may_have_happened_or_changed_its_place_ends_the_job_with_what_to_do() -> None:
    obstacle = find_obstacle(asked(place=2), EffectAnswer("uncertain", holder=3, age_s=120.0))
    assert isinstance(obstacle, rota.Dead)
    assert "may have happened 2 min ago, in job 3" in str(obstacle)
    assert "`rota effects resolve mail:1 --job 7 --done`" in str(obstacle)
    obstacle = find_obstacle(asked(key="it's 1"), EffectAnswer("uncertain", holder=3))
    assert """`rota effects resolve 'it'"'"'s 1' --done` or""" in str(obstacle)
    moved = find_obstacle(asked(place=2), EffectAnswer("moved", expected="pay"))
    assert isinstance(moved, rota.Dead)
    assert "step 'mail:1' is called as number 2, where it was 'pay'" in str(moved)
