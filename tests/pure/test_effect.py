"""Which errors prove that what an effect guards did not happen."""

from __future__ import annotations

import http.client
import smtplib
import urllib.error
import urllib.request
from email.message import Message

import pytest

import rota
from rota.model.effect import proves_not_done
from tests.support.rules import rule
from tests.support.server import unused_port


class NewConnectionError(Exception):
    """As urllib3 has it."""


class MaxRetryError(Exception):
    """As urllib3 has it."""

    def __init__(self, reason: Exception) -> None:
        super().__init__("Max retries exceeded")
        self.reason = reason


class RequestsConnectionError(OSError):
    """As requests has it."""


RequestsConnectionError.__name__ = "ConnectionError"


def answered(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://mail", code, "no", Message(), None)


@rule("M52")
def test_a_server_that_cannot_be_reached_has_done_nothing() -> None:
    for url in (f"http://127.0.0.1:{unused_port()}/", "http://nobody.invalid/"):
        with pytest.raises(urllib.error.URLError) as found:
            urllib.request.urlopen(url, data=b"hello", timeout=10)
        assert proves_not_done(found.value)
    with pytest.raises(ConnectionRefusedError) as refused:
        http.client.HTTPConnection("127.0.0.1", unused_port()).request("POST", "/")
    assert proves_not_done(refused.value)


@rule("M52")
@pytest.mark.parametrize(
    ("error", "proves"),
    [
        (answered(404), True),
        (answered(503), True),
        (answered(500), False),
        (answered(504), False),
        (smtplib.SMTPDataError(554, b"no"), True),
        (smtplib.SMTPSenderRefused(451, b"later", "ann"), True),
        (smtplib.SMTPRecipientsRefused({"ann": (550, b"no")}), True),
        (smtplib.SMTPResponseException(421, b"what QUIT was answered"), False),
        (smtplib.SMTPServerDisconnected("in the middle"), False),
        (urllib.error.URLError(TimeoutError("sent, perhaps")), False),
        (urllib.error.URLError(BrokenPipeError()), False),
        (MaxRetryError(NewConnectionError()), True),
        (MaxRetryError(TimeoutError()), False),
        (RequestsConnectionError(MaxRetryError(NewConnectionError())), True),
        (RequestsConnectionError(MaxRetryError(TimeoutError())), False),
        (RequestsConnectionError("aborted"), False),
        (ConnectionResetError(), False),
        (TimeoutError(), False),
        (KeyError("reason"), False),
    ],
    ids=repr,
)
def test_only_a_refusal_proves_that_nothing_happened(error: Exception, proves: bool) -> None:
    assert proves_not_done(error) is proves


@rule("M52")
def test_what_safe_names_proves_it_also_where_it_is_an_outcome_or_a_group() -> None:
    later = rota.Retry("later")
    assert not proves_not_done(later)
    assert proves_not_done(later, (rota.Retry,))
    group = ExceptionGroup("both", [ConnectionRefusedError()])
    assert proves_not_done(group, (ExceptionGroup,))


@rule("M52")
def test_of_an_outcome_only_the_error_from_which_it_was_raised_counts() -> None:
    later = rota.Retry("later")
    later.__cause__ = answered(429)
    assert proves_not_done(later)
    later.__cause__ = TimeoutError()
    assert not proves_not_done(later)


@rule("M52")
def test_a_group_of_refusals_proves_nothing() -> None:
    """A task group cancels the calls beside the one that failed, and does not tell of them."""
    assert not proves_not_done(ExceptionGroup("one", [ConnectionRefusedError()]))
