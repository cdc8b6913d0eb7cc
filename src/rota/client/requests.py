"""Requests to act on jobs, for calls and commands: made, sent, and their answers explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from rota.client.base import (
    check_by,
    check_id,
    check_texts,
    check_why,
)
from rota.client.enqueue import refuse_too_large
from rota.client.selection import ActionFilters, find_jobs
from rota.declare.job_type import JobType
from rota.declare.options import EnqueueOptions
from rota.declare.payload import encode_untyped, refuse_mask
from rota.declare.secret import Secret, is_sealed
from rota.errors import (
    ConfigurationError,
    JobNotFound,
    KeyNotFound,
    RotaError,
    UsageError,
    WrongStatus,
)
from rota.model.asks import add_asks
from rota.model.bounds import KEY_MAX, check_text
from rota.model.failure import list_names
from rota.model.job import Action, Enqueued, Status
from rota.model.record import Record
from rota.model.scrub import MASK
from rota.model.states import takes
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import Moved

AnyType = JobType[..., ..., Any]
ActionRequest = ops.ActionRequest
Answer = ops.Answer

OF_MANY = "run_at, delay, priority and to_queue"
"""What can change of many jobs, for an error."""


class ActionResult(Record, frozen=True):
    """The result of an action on many jobs."""

    done: list[int]
    """Ids of the changed jobs, ascending."""
    new_ids: dict[int, int]
    """Id of the new job, by the id of the requeued or repeated job."""
    refused: dict[int, str]
    """Why the action was refused, by the id of the job."""


def make_request(
    action: Action,
    by: object,
    why: object,
    moved: Moved | None = None,
    *,
    name_of_why: str = "why",
) -> ActionRequest:
    """Return the request of an action. Raises UsageError, which calls the reason `name_of_why`."""
    reason = check_why(why)
    if action is Action.ARCHIVE and reason is None:
        raise UsageError(f"{name_of_why} is required: it records why these jobs are archived")
    return ActionRequest(action, check_by(by), reason, moved=moved)


def check_moved(
    run_at: datetime | None,
    delay: Duration | None,
    priority: int | None,
    queue: str | None,
    *,
    names: str = "run_at, delay, priority and queue",
) -> Moved:
    """Return to when and where jobs are rescheduled. Raises UsageError."""
    checked = EnqueueOptions().update(
        {"run_at": run_at, "delay": delay, "priority": priority, "queue": queue}
    )
    moved = Moved(
        run_at=checked.run_at,
        delay=None if checked.delay_s is None else timedelta(seconds=checked.delay_s),
        priority=checked.priority,
        queue=checked.queue,
    )
    if moved == Moved():
        raise UsageError(f"reschedule: give at least one of {names}")
    return moved


# One job


def act_once(action: Action, id: int, by: str | None, why: str | None) -> Operation[Status]:
    """Act on one job; return its status now. Raises JobNotFound, WrongStatus."""
    answer = yield from _act_on_one(make_request(action, by, why), id)
    return Status(answer.status or Status.DEAD)


def act_by_id_or_key(
    request: ActionRequest, id: int | None, key: str | None, job_type: AnyType | str | None
) -> Operation[Status]:
    """Act on the job with this id or this key; return its status now."""
    if (id is None) == (key is None):
        raise UsageError(f"{request.action.value}: give the id of a job, or a key")
    if key is None:
        if job_type is not None:
            raise UsageError(f"{request.action.value}: job_type goes with a key, not with an id")
        answer = yield from _act_on_one(request, check_id(id))
    else:
        answer = yield from act_on_key(request, key, job_type)
    return Status(answer.status or Status.DEAD)


def act_on_key(
    request: ActionRequest, key: str, job_type: AnyType | str | None
) -> Operation[Answer]:
    """Cancel or reschedule the job that holds a key. Raises KeyNotFound, WrongStatus, and
    UsageError if jobs of several types hold the key."""
    check_text(key, "key", KEY_MAX)
    name = job_type.name if isinstance(job_type, JobType) else job_type
    check_texts(job_type=name)
    holders = yield from ops.act_on_key(request, key, name)
    holder = holders[0]
    if holder.answer == "ambiguous":
        types = list_names(found.job_type or "" for found in holders)
        raise UsageError(f"jobs of several types hold the key {key!r}: {types}; name one of them")
    if holder.job is None or holder.answer == "not found":
        raise KeyNotFound(key, name)
    answer = Answer(holder.job, holder.answer, holder.status)
    refusal = explain_refusal(request.action, answer)
    if refusal is not None:
        raise refusal
    return answer


def make_retry(
    by: object,
    why: object,
    *,
    again: bool,
    fresh: bool,
    corrected: bool = False,
    key: str | None = None,
) -> ActionRequest:
    """Return the request of a retry, or of an exact form. Raises UsageError."""
    if again and fresh:
        raise UsageError("give again, or fresh: a new run is fresh")
    if key is not None and not again:
        raise UsageError("a key is for a job that runs again: a retry keeps the old one")
    exact = Action.REQUEUE if fresh or corrected else Action.RETRY
    request = make_request(Action.RUN_AGAIN if again else exact, by, why)
    key = None if key is None else check_text(key, "key", KEY_MAX)
    return replace(request, fresh=fresh, key=key)


def act_anew(request: ActionRequest, id: int) -> Operation[Enqueued]:
    """Retry a job; return the job that runs now: the same job, or a new job."""
    answer = yield from _act_on_one(request, id)
    if answer.new_id is None or answer.answer == "key held":
        return Enqueued(answer.new_id or id, False, answer.status or Status.QUEUED.value)
    return Enqueued(answer.new_id, True, Status.QUEUED.value)


def _act_on_one(request: ActionRequest, id: int) -> Operation[Answer]:
    [answer] = yield from ops.act(request, [check_id(id)])
    refusal = explain_refusal(request.action, answer)
    if refusal is not None:
        raise refusal
    return answer


def reveal_payload(id: int, by: str | None, why: str | None) -> Operation[dict[str, Any]]:
    """Read the payload of a job, record the reader, and open the secrets. Raises UsageError."""
    reason = check_why(why)
    if reason is None:
        raise UsageError("say why the values are shown: the reason is recorded")
    payload = yield from ops.reveal(id, reason, check_by(by))
    if payload is None:
        raise JobNotFound(id)
    return {name: _reveal(value) for name, value in payload.items()}


def _reveal(value: Any) -> Any:
    if not is_sealed(value):
        return value
    try:
        return Secret.open(value).reveal()
    except ConfigurationError:
        return MASK


def correct_payload(
    request: ActionRequest,
    id: int,
    payload: Mapping[str, Any],
    type_of: Callable[[str], JobType[..., ..., Any] | None],
) -> Operation[ActionRequest]:
    """Return a requeue with a checked, corrected payload. Raises PayloadError, JobNotFound."""
    if not isinstance(payload, Mapping):
        raise UsageError(f"payload must be a mapping of the handler's arguments, not {payload!r}")
    job = yield from ops.get(id)
    name = job.job_type
    refuse_mask(name, job.hidden_fields or (), payload)
    job_type = type_of(name)
    if job_type is None:
        text = encode_untyped(name, dict(payload))
        yield from refuse_too_large(name, text, None)
        return replace(request, payload=text)
    declared = job_type._declaration
    text = declared.codec.encode((), dict(payload))
    yield from refuse_too_large(name, text, None)
    arguments, _ = declared.codec.decode(text)
    meta = add_asks(None, declared.asks.make(arguments))
    return replace(request, payload=text, version=declared.options.version, meta=meta)


# Many jobs


def act_on_many(request: ActionRequest, filters: ActionFilters) -> Operation[ActionResult]:
    """Act on the jobs of a filter, in batches of 1,000."""
    request, ids = yield from find_jobs(request, filters)
    answers, refusals = yield from ops.act_on_many(request, ids)
    return sort_answers(request.action, answers, refusals)


def act_on_portion(
    request: ActionRequest, filters: ActionFilters, after: int, until: int
) -> Operation[tuple[ActionResult, int | None]]:
    """Act on the first thousand jobs of a filter with ids above `after` and up to `until`. Return
    the result, and the last of their ids if there are more."""
    request, ids = yield from find_jobs(request, filters)
    left = [id_ for id_ in ids if after < id_ <= until]
    portion = left[: ops.ACTION_MAX]
    answers, refusals = yield from ops.act_on_many(request, portion)
    more = portion[-1] if len(left) > len(portion) else None
    return sort_answers(request.action, answers, refusals), more


# Answers


def explain_refusal(action: Action, answer: Answer) -> RotaError | None:
    """Return why an action on a job was refused; None: it was done."""
    if answer.status is None:
        return JobNotFound(answer.job)
    if answer.answer == "key held" and action is not Action.RUN_AGAIN:
        advice = "; retry it when that has finished"
        return WrongStatus(answer.job, (answer.status,), answer.status, advice, answer.new_id)
    if answer.answer != "refused":
        return None
    if action is Action.RUN_AGAIN and answer.status in takes(action):
        return UsageError(f"job {answer.job}: what it was given was erased; nothing was changed")
    # A running job that is refused began after its filter found it.
    runs = answer.status == Status.RUNNING
    wanted = tuple(fit.value for fit in takes(action) if not (runs and fit is Status.RUNNING))
    return WrongStatus(answer.job, wanted, answer.status, _advise(action, answer))


def _advise(action: Action, answer: Answer) -> str:
    if answer.new_id is not None:
        return f"; it was requeued as job {answer.new_id}"
    if answer.status == Status.RUNNING and action in (Action.RETRY, Action.DISCARD):
        return "; it began meanwhile, and only the status running takes it from its worker"
    if answer.status == Status.DEAD and action in (Action.CANCEL, Action.RESCHEDULE):
        return "; retry or archive a dead job instead"
    if action is Action.RETRY and Status(answer.status or Status.DEAD).is_over:
        return "; for a new run of it: --again, in Python again=True"
    if action is Action.REQUEUE and answer.status != Status.DEAD:
        return "; a new payload and a fresh start are for dead jobs"
    return ""


def sort_errors(
    action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]
) -> dict[int, RotaError]:
    """Return why an action was refused, by the id of the job."""
    errors = {answer.job: explain_refusal(action, answer) for answer in answers}
    errors |= {
        job: RotaError(f"job {job}: the database refuses: {why}") for job, why in refusals.items()
    }
    return {job: error for job, error in sorted(errors.items()) if error is not None}


def sort_answers(
    action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]
) -> ActionResult:
    errors = sort_errors(action, answers, refusals)
    done = [answer for answer in answers if answer.job not in errors]
    return ActionResult(
        done=[answer.job for answer in done],
        new_ids={answer.job: answer.new_id for answer in done if answer.new_id is not None},
        refused={job: str(error) for job, error in errors.items()},
    )
