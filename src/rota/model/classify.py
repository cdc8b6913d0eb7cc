"""Whether another attempt can help, and when. It reads an error's class, number, status code and
headers, and the clock only for a date that comes without its server's."""

from __future__ import annotations

import errno
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from traceback import walk_tb

import msgspec
from msgspec.structs import replace

from rota.model.failure import one_line
from rota.model.outcome import ungroup
from rota.model.retry import Errors

RETRY_AFTER_MAX_S = 86_400.0
"""Longest wait, in seconds: a server that asks for more is asked again after a day."""

UNKNOWN_ERROR = "unknown error"
"""The rule of an error that no other rule knows. It is retried."""
_BY_CLASS = ("timeout", "connection", UNKNOWN_ERROR)


class Verdict(StrEnum):
    TRANSIENT = "transient"
    FATAL = "fatal"


class Classification(msgspec.Struct, frozen=True):
    """The verdict on an error, the rule that gave it, and the HTTP or SMTP code if there is one."""

    verdict: Verdict
    rule: str
    response_code: int | None = None
    retry_after_s: float | None = None
    """Seconds that the server asks to wait; None: it does not ask."""
    is_endpoint: bool = False
    """Whether a circuit breaker counts it: the endpoint is at fault, not this job."""


def classify(error: BaseException, retry_on: Errors = (), fatal_on: Errors = ()) -> Classification:
    """Classify an error as transient or fatal.

    A status code in fatal_on and retry_on decides; then the class in them that is the nearest in
    the error's method resolution order; fatal_on on a tie; then the defaults. Only the error itself
    counts, not its cause. A group is fatal if all its errors are. An error that is known by its
    class alone may name its rule: `rota_rule`."""
    seen = replace(_classify(error, retry_on, fatal_on), is_endpoint=is_endpoint_failure(error))
    named = _read(type(error), "rota_rule")
    if isinstance(named, str) and seen.rule in _BY_CLASS:
        seen = replace(seen, rule=one_line(named, 100))
    if seen.response_code is None or isinstance(error, BaseExceptionGroup):
        return seen  # the code of a group is a member's
    return replace(seen, retry_after_s=_retry_after_s(error))


def is_endpoint_failure(error: BaseException) -> bool:
    """Whether an error says that an endpoint does not serve, whatever was asked: a timeout, a
    connection, a status of 500 or more, or 429; of SMTP a server that accepts nothing. `retry_on`
    and `fatal_on` change nothing. One such member of a group is enough."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_endpoint_failure, ungroup(error)))
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"DatabaseUnavailable", "JoinTimeout"}:
        return False  # of Rota's own database or of another job: no endpoint of this job type
    code = response_code(error)
    if code is not None and code >= 400:
        if _smtp_code(error) is not None:
            return bool(names & _SMTP_SESSION) or code in _SMTP_ENDPOINT
        return code >= 500 or code == 429
    return _by_default(error, code).rule in ("timeout", "connection")


def may_be_of_one_job(error: BaseException, retry_on: Errors = (), fatal_on: Errors = ()) -> bool:
    """Whether an error of a call with many jobs may be the fault of one of them: unless it says
    that trying again helps, such as a timeout, a connection, a status of 503, or a class of
    `retry_on`."""
    seen = _classify(error, retry_on, fatal_on)
    return seen.verdict is Verdict.FATAL or seen.rule == UNKNOWN_ERROR


def _classify(error: BaseException, retry_on: Errors, fatal_on: Errors) -> Classification:
    code = response_code(error)
    if code is not None and code in fatal_on:
        return Classification(Verdict.FATAL, f"fatal_on {code}", code)
    if code is not None and code in retry_on:
        return Classification(Verdict.TRANSIENT, f"retry_on {code}", code)
    for kind in type(error).__mro__:
        if kind in fatal_on:
            return Classification(Verdict.FATAL, f"fatal_on {kind.__name__}", code)
        if kind in retry_on:
            return Classification(Verdict.TRANSIENT, f"retry_on {kind.__name__}", code)
    if isinstance(error, BaseExceptionGroup):
        verdicts = [classify(member, retry_on, fatal_on) for member in ungroup(error)]
        return next((seen for seen in verdicts if seen.verdict is Verdict.TRANSIENT), verdicts[0])
    return _by_default(error, code)


# Class names anywhere among an error's bases, so that no library has to be imported to know them.
_TIMEOUTS = frozenset(
    {
        "TimeoutError",
        "Timeout",
        "TimeoutException",
        "AttemptTimeout",
        "ServerTimeoutError",
        "QueryCanceled",
        "LockNotAvailable",
    }
)
_CONNECTIONS = frozenset(
    {
        "ConnectionError", "ClientConnectionError", "ConnectError", "NetworkError",
        "TransportError", "ProtocolError", "IncompleteRead", "gaierror", "herror", "SSLError",
        "SMTPServerDisconnected", "OperationalError", "InterfaceError", "DatabaseUnavailable",
        "BadStatusLine", "EndpointConnectionError", "MaxRetryError", "NewConnectionError",
    }
)  # fmt: skip
_NETWORK_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "ENETDOWN",
        "ENETUNREACH",
        "ENETRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "EADDRNOTAVAIL",
        "ENOTCONN",
        "ENOBUFS",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)


def _by_default(error: BaseException, code: int | None) -> Classification:
    names = {kind.__name__ for kind in type(error).__mro__}
    reason = _read(error, "reason") if "URLError" in names and code is None else None
    if isinstance(reason, BaseException) and reason is not error:
        return _by_default(reason, None)  # urllib wraps what the socket raised
    if "PayloadError" in names:
        return Classification(Verdict.FATAL, "payload", code)
    if code is not None and code >= 400:
        is_smtp = _smtp_code(error) is not None
        is_transient = code >= 500 or code in (408, 425, 429)
        if is_smtp:
            # 4xx means later and 5xx means never (RFC 5321, 4.2.1), if it is about the message.
            is_transient = code < 500 or is_endpoint_failure(error)
        return Classification(
            Verdict.TRANSIENT if is_transient else Verdict.FATAL,
            f"{'smtp' if is_smtp else 'status'} {code}",
            code,
        )
    if names & _TIMEOUTS or _read(error, "errno") == errno.ETIMEDOUT:
        return Classification(Verdict.TRANSIENT, "timeout", code)
    if names & _CONNECTIONS or (
        isinstance(error, OSError) and _read(error, "errno") in _NETWORK_ERRNOS
    ):
        return Classification(Verdict.TRANSIENT, "connection", code)
    return Classification(Verdict.TRANSIENT, UNKNOWN_ERROR, code)


def response_code(error: BaseException) -> int | None:
    """Return the HTTP or SMTP code of the answer that an error reports; None: it reports none."""
    smtp_code = _smtp_code(error)
    if smtp_code is not None:
        return smtp_code
    candidates = (
        _read(error, "status_code"),
        _read(_read(error, "response"), "status_code"),
        _read(error, "status"),
    )
    return next((code for code in map(_as_code, candidates) if code is not None), None)


def was_redirected(error: BaseException) -> bool:
    """Whether a redirect had led to the request that an error ended."""
    histories = (_read(error, "history"), _read(_read(error, "response"), "history"))
    if any(isinstance(history, list | tuple) and history for history in histories):
        return True
    return any(frame.f_code.co_name in _REDIRECTS for frame, _ in walk_tb(error.__traceback__))


_SMTP_ENDPOINT = frozenset({421, 432, 454, 530, 534, 535, 538})
"""Codes of SMTP (RFC 5321, 4954): the server goes down, cannot authenticate, has no TLS now, or
refuses the login. 450 to 452 are mostly of one mailbox, as in greylisting, other 5xx of one
message."""
_SMTP_SESSION = frozenset({"SMTPConnectError", "SMTPHeloError", "SMTPAuthenticationError"})
"""What the server refuses before it knows of a message, whatever the code, such as 554."""

_REDIRECTS = frozenset({"http_error_302", "resolve_redirects"})
"""The functions of urllib and requests that follow a redirect: their errors say nothing of it."""


def _smtp_code(error: BaseException) -> int | None:
    code = _as_code(_read(error, "smtp_code"))
    if code is None and any("SMTP" in kind.__name__ for kind in type(error).__mro__):
        code = _as_code(_read(error, "code"))  # as aiosmtplib calls it
    if code is None and type(error).__name__ == "SMTPRecipientsRefused":
        # If one address may work later, a retry helps.
        codes = map(_as_code, _list_recipient_codes(_read(error, "recipients")))
        code = min((code for code in codes if code is not None), default=None)
    return code


def _list_recipient_codes(refused: object) -> list[object]:
    """Return the code of each address: smtplib has {address: (code, text)}, aiosmtplib errors."""
    if isinstance(refused, dict):
        return [answer[0] for answer in refused.values() if isinstance(answer, tuple) and answer]
    return [_read(refusal, "code") for refusal in refused] if isinstance(refused, list) else []


_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")


def _retry_after_s(error: BaseException) -> float | None:
    """Return the seconds that a Retry-After header asks for (RFC 9110, 10.2.3); None: nothing."""
    for headers in (
        _read(error, "headers"),
        _read(_read(error, "response"), "headers"),
    ):
        asked = _header(headers, "retry-after")
        if asked is None:
            continue
        if _SECONDS.fullmatch(asked):
            wait_s = float(asked)
        else:
            # By the server's own clock, if it tells it: ours may differ.
            at, now = _as_date(asked), _as_date(_header(headers, "date")) or datetime.now(UTC)
            wait_s = 0.0 if at is None else (at - now).total_seconds()
        if wait_s > 0:
            return min(wait_s, RETRY_AFTER_MAX_S)
    return None


def _header(headers: object, name: str) -> str | None:
    """Return a header, whatever its case: not every client's mapping ignores it."""
    items = _read(headers, "items")
    try:
        for given, value in items() if callable(items) else ():
            if str(given).lower() == name:
                return str(value).strip()[:100]
    except (Exception, SystemExit):  # noqa: BLE001 - a foreign mapping, of foreign keys
        return None
    return None


def _as_date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _read(thing: object, name: str) -> object:
    try:
        return getattr(thing, name, None)
    except (Exception, SystemExit):  # noqa: BLE001 - a foreign property; of another class
        return None


def _as_code(value: object) -> int | None:
    return (
        int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
        else None
    )
