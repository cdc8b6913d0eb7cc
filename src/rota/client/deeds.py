"""What actions stand on: which jobs are meant, whether a corrected payload fits, and what came of it in words. Used by the command line too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from rota.client.base import moment
from rota.client.enqueueing import too_large
from rota.declare.job_type import JobType
from rota.declare.jsonb import PAYLOAD_BYTES_LEAST, fits, text_bytes
from rota.declare.payload import untyped
from rota.errors import JobNotFound, PayloadError, RotaError, UsageError, WrongStatus
from rota.model.bounds import NAME_MAX, QUEUE_MAX, check_integer, check_text
from rota.model.job import Action, Status, takes
from rota.store import ops
from rota.store.ops import Act, Answer, Filter, Which

if TYPE_CHECKING:
    from datetime import datetime

    from rota.model.units import Duration
    from rota.store.driver import Operation

MANY_MAX = 1_000_000
"""Their ids are held in memory."""
MANY = 100_000

BY_DEFAULT: Mapping[Action, Sequence[Status]] = {
    Action.CANCEL: takes(Action.CANCEL),
    Action.RETRY_NOW: (Status.FAILED,),
    Action.BURY: (Status.QUEUED, Status.WAITING, Status.FAILED),
    Action.REQUEUE: (Status.DEAD,),
    Action.IGNORE: (Status.DEAD,),
    Action.RUN_AGAIN: (),
}
"""What a filter that names no status means. Leases are taken, and what had its success is repeated, only when somebody says so."""


class Acted(msgspec.Struct, frozen=True):
    """What came of an action on many jobs."""

    done: list[int]
    """The ids of the jobs to which it was done, ascending."""
    new_ids: dict[int, int]
    """Of a requeue or another run: the id of the new job of each."""
    refused: dict[int, str]
    """Of each job to which it was not done: why."""


def chosen(
    action: Action,
    *,
    status: str | None = None,
    job_type: str | None = None,
    queue: str | None = None,
    error_type: str | None = None,
    release: str | None = None,
    since: datetime | Duration | None = None,
    limit: int = MANY,
) -> Which:
    """Say which jobs filters mean. Raises UsageError where they mean all, or none to which it can be done."""
    filters = (status, job_type, queue, error_type, release, since)
    if filters.count(None) == len(filters):
        raise UsageError(
            f"{action.value}: give ids, or at least one of "
            "status, job_type, queue, error_type, release and since"
        )
    for name, value, most in (
        ("job_type", job_type, NAME_MAX),
        ("queue", queue, QUEUE_MAX),
        ("error_type", error_type, NAME_MAX),
        ("release", release, NAME_MAX),
    ):
        if value is not None:
            check_text(value, name, most)
    check_integer(limit, "limit", 1, MANY_MAX)
    statuses = _statuses(action, status)
    if since is None and any(one.is_over for one in statuses):
        raise UsageError(
            f"{action.value}: give since to select finished jobs by the time they finished"
        )
    return Which(
        statuses=[one.value for one in statuses],
        job_type=job_type,
        queue=queue,
        error_type=error_type,
        release=release,
        since=moment(since, "since"),
        limit=limit,
    )


def _statuses(action: Action, status: str | None) -> Sequence[Status]:
    possible = takes(action)
    if status is None:
        if not BY_DEFAULT[action]:
            raise UsageError(f"{action.value}: give a status, one of {', '.join(possible)}")
        return BY_DEFAULT[action]
    if status not in possible:
        raise UsageError(
            f"{action.value}: status must be one of {', '.join(possible)}, not {str(status)!r}"
        )
    return (Status(status),)


def corrected(
    act: Act,
    id: int,
    payload: Mapping[str, Any],
    type_of: Callable[[str], JobType[..., ..., Any] | None],
) -> Operation[Act]:
    """Check a payload against the type of the job that it is for, and against the limit. Raises PayloadError, JobNotFound."""
    if not isinstance(payload, Mapping):
        raise UsageError(f"payload must be a mapping of the handler's arguments, not {payload!r}")
    found = yield from ops.find(Filter(ids=[id]))
    if not found:
        raise JobNotFound(id)
    name = found[0].job_type
    declared = type_of(name)
    text = (
        untyped(name, dict(payload))
        if declared is None
        else declared.codec.encode((), dict(payload))
    )
    if not fits(text, PAYLOAD_BYTES_LEAST):
        size, most = text_bytes(text), (yield from ops.payload_bytes_max())
        if size > most:
            raise PayloadError(name, None, too_large(size, most))
    return replace(
        act, payload=text, payload_version=None if declared is None else declared.settings.version
    )


def named(types: Mapping[str, JobType[..., ..., Any]]) -> dict[str, JobType[..., ..., Any]]:
    """Return job types by all of their names, former ones too."""
    return {
        name: job_type
        for job_type in types.values()
        for name in (job_type.name, *job_type.settings.aliases)
    }


def refused(action: Action, answer: Answer) -> RotaError | None:
    """Why it was not done to a job; None when it was, or will be."""
    if answer.status is None:
        return JobNotFound(answer.job)
    if answer.answer != "refused":
        return None
    wanted = tuple(status.value for status in takes(action))
    return WrongStatus(answer.job, wanted, answer.status, _advice(action, answer))


def _advice(action: Action, answer: Answer) -> str:
    if answer.new_id is not None:
        return f"; it was requeued as job {answer.new_id}"
    if answer.status == Status.DEAD and action in (Action.CANCEL, Action.RETRY_NOW):
        return "; requeue or ignore a dead job instead"
    return ""


def sort_errors(
    action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]
) -> dict[int, RotaError]:
    """Return why an action was not done, for each job to which it was not, by id."""
    errors = {answer.job: refused(action, answer) for answer in answers}
    errors |= {
        job: RotaError(f"job {job}: the database refuses: {why}") for job, why in refusals.items()
    }
    return {job: error for job, error in sorted(errors.items()) if error is not None}


def sort_answers(action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]) -> Acted:
    """Return what came of an action on many jobs."""
    errors = sort_errors(action, answers, refusals)
    done = [answer for answer in answers if answer.job not in errors]
    return Acted(
        done=[answer.job for answer in done],
        new_ids={answer.job: answer.new_id for answer in done if answer.new_id is not None},
        refused={job: str(error) for job, error in errors.items()},
    )
