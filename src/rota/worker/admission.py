"""Whether a held job may begin, and with what arguments: asked when there is a slot for it, and again just before its first step."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.errors import PayloadError
from rota.model.outcome import Cancel, End, Errored, Expired, HandedBack, PayloadMismatch

if TYPE_CHECKING:
    from rota.worker.held import Held

logger = logging.getLogger("rota")

NOT_STARTED_S = 10.0
"""How long a job stays away for which no thread or process could be started."""


def refused(held: Held) -> End | None:
    """Why a job may not begin now; None when it may."""
    if held.told is not None:
        return held.told
    if held.lost or not held.may_start(monotonic()):
        return HandedBack("its lease had less than a quarter left")
    return None


class Admission:
    """Reads what handlers are called with, and says once of each job type that a part of it is ignored."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def arguments(self, held: Held) -> dict[str, Any] | End:
        """The arguments of a job that may begin, or why it may not."""
        end = refused(held)
        if end is not None:
            return end
        try:
            arguments, unknown = held.job_type.arguments(held.job)
        except BaseException as error:  # noqa: BLE001 - an upgrade function is the user's code; its SystemExit too ends no worker
            return PayloadMismatch(error) if isinstance(error, PayloadError) else Errored(error)
        if unknown:
            self._warn_unknown(held.job_type.name, unknown)
        return arguments

    def _warn_unknown(self, name: str, unknown: frozenset[str]) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "job type %r: fields of a stored payload that its handler does not take are ignored: %s",
                name,
                ", ".join(sorted(unknown)),
            )


def too_late(held: Held) -> End | None:
    """Between the decision and its first step the process may have been frozen or busy, or the job told to stop: then its handler does not begin."""
    now = monotonic()
    end: End | None = None
    if held.told is not None:
        end = (
            held.told
            if isinstance(held.told, Cancel)
            else HandedBack("it was told to stop before it began")
        )
    elif not held.may_start(now):
        end = HandedBack("its lease ran out before it began")
    elif held.job.expires_at is not None and (late_s := held.late_s(now)) >= 0:
        end = Expired(late_s)
    if end is not None:
        held.started_at = held.begun_at = None
    return end


def not_started(held: Held, what: str, error: Exception) -> End:
    """The machine gives the worker no thread or process for a job: no fault of the job's, which goes back."""
    logger.error(
        "job %s %s: no %s can be started for it: %s", held.job.id, held.job.job_type, what, error
    )
    end = too_late(held)
    held.started_at = held.begun_at = None
    return end or HandedBack(f"no {what} can be started for it: {error}", NOT_STARTED_S)
