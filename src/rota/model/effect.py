"""Side effects that must not be repeated blindly: what a handler asks the database, what the answer
means, and which errors prove that nothing happened. Pure."""

from __future__ import annotations

import errno
from asyncio import CancelledError
from datetime import datetime, timedelta
from shlex import quote
from typing import Literal

import msgspec

from rota.errors import AttemptCancelled
from rota.model.classify import response_code, was_redirected
from rota.model.outcome import Dead, Outcome, Snooze
from rota.model.retry import Errors
from rota.model.units import words

IfUncertain = Literal["skip", "repeat", "dead"]
"""What to do about an effect that may have happened: treat it as done, repeat it, or end the job as
dead, so that a person decides."""

HELD_S = (1.0, 60.0)
"""Shortest and longest time until a job asks again for an effect that another job is at."""


class EffectCall(msgspec.Struct, frozen=True):
    """What the handler of one claim tells the database of an effect."""

    verb: Literal["intend", "finish", "withdraw"]
    job: int
    claims: int
    entry: int
    """Which intent of this claim it is, so that a call can be repeated after a lost answer."""
    key: str
    place: int | None
    """How many steps the handler called with this step; None: an effect."""
    if_uncertain: IfUncertain
    result_json: str | None = None
    about_json: str | None = None
    """What the effect is found by."""
    not_done: datetime | None = None
    """When an intent was written that, as a person has found, did not happen."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{'effect' if self.place is None else 'step'} {self.key!r}"


class EffectAnswer(msgspec.Struct, frozen=True):
    """The database's answer; `effect_intend.sql` has the states. An end: `ended` or `lost`."""

    state: Literal["begun", "done", "skip", "uncertain", "held", "moved", "ended", "lost"]
    result_json: str | None = None
    earlier: int = 0
    """Intents before this intent that may have happened."""
    holder: int = 0
    """The job that intended it last."""
    age_s: float = 0.0
    """How many seconds ago the last intent was."""
    expected: str | None = None
    """The step that was called at this place before; None: an effect."""


def find_obstacle(call: EffectCall, answer: EffectAnswer) -> Outcome | AttemptCancelled | None:
    """Return how the attempt ends because of an answer; None: it goes on."""
    what = call.name
    match answer.state:
        case "lost":
            return AttemptCancelled(f"the job is not held by this attempt any more: {what}")
        case "held":
            after_s = min(max(HELD_S[0], answer.age_s), HELD_S[1])
            return Snooze(timedelta(seconds=after_s), f"job {answer.holder} is at {what}")
        case "uncertain":
            of = f" --job {call.job}" if call.place is not None else ""
            return Dead(
                f"{what} may have happened {words(answer.age_s)} ago, in job {answer.holder}: look "
                f"there, then `rota effects resolve {quote(call.key)}{of} --done` or `--not-done`, "
                "then retry"
            )
        case "moved":
            now = f"{what} is called as number {call.place}"
            before = "it was at another place" if answer.expected is None else repr(answer.expected)
            return Dead(
                f"the steps are in another order than in an earlier attempt: {now}, where it was "
                f"{before}; retry with the release that began, or with --fresh"
            )
    return None


# Class names anywhere among an error's bases, so that no library has to be imported to know them.
_NOT_CONNECTED = frozenset(
    {
        "ConnectionRefusedError", "gaierror", "herror",
        "ConnectError", "ConnectTimeout", "PoolTimeout",
        "NewConnectionError", "ConnectTimeoutError", "NameResolutionError",
        "ClientConnectorError", "ConnectionTimeoutError", "EndpointConnectionError",
        "SMTPConnectError",
    }
)  # fmt: skip
"""Of httpx, urllib3, requests, aiohttp, botocore, smtplib and aiosmtplib."""


def proves_not_done(error: BaseException, safe: Errors = ()) -> bool:
    """Whether an error proves that its request did nothing: the server refused the connection or
    the request, or the error is one of `safe`.

    Only the error itself counts, and of an Outcome or a cancellation the error from which it was
    raised: earlier errors may be of another request. A group proves nothing: it does not tell of
    requests that succeeded or that its task group cancelled.
    """
    if any(kind in safe for kind in type(error).__mro__):
        return True
    if isinstance(error, Outcome | CancelledError):
        return error.__cause__ is not None and proves_not_done(error.__cause__, safe)
    code = response_code(error)
    if code in safe:
        return True
    if was_redirected(error):
        return False  # another server has had the request before
    if code is not None and _is_refusal(error, code):
        return True
    return _is_unconnected(error) or _is_unconnected(_find_reason(error))


def _is_refusal(error: BaseException, code: int) -> bool:
    """Whether the server that answered with a code has refused the request."""
    if type(error).__name__ == "SMTPResponseException":
        return False  # a bare one comes from QUIT, after the message was accepted
    is_smtp = any("SMTP" in kind.__name__ for kind in type(error).__mro__)
    return 400 <= code < 500 or code == 503 or (code >= 500 and is_smtp)


def _is_unconnected(error: object) -> bool:
    """Whether an error says that there was no connection to send a request on."""
    names = {kind.__name__ for kind in type(error).__mro__}
    refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
    return refused or bool(names & _NOT_CONNECTED)


def _find_reason(error: BaseException) -> object:
    """Return the error inside an error of urllib or urllib3, or inside the ConnectionError that
    requests makes of it; None: there is none."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "ConnectionError" in names and error.args:
        return getattr(error.args[0], "reason", None)
    return getattr(error, "reason", None) if names & {"URLError", "MaxRetryError"} else None
