"""What people do: to jobs, and the log of it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from rota.model.job import Action, Status
from rota.model.record import Record
from rota.store.driver import Operation, Query
from rota.store.isolate import Refusals, isolate
from rota.store.ops.read import instant_or_ago

ACTION_MAX = 1_000
"""Most jobs per statement: it holds their locks, and workers wait for its end."""


class Moved(msgspec.Struct, frozen=True):
    """When and where rescheduled jobs run; None: unchanged."""

    run_at: datetime | None = None
    delay: timedelta | None = None
    """The same as a time from now."""
    priority: int | None = None
    queue: str | None = None


class ActionRequest(msgspec.Struct, frozen=True):
    action: Action
    by: str
    why: str | None = None
    payload: str | None = None
    """For a requeue or another run of one job: the new job's payload, as JSON."""
    version: int | None = None
    """Of that payload."""
    meta: str | None = None
    """What is added to the meta with it, as JSON text."""
    key: str | None = None
    """For another run of one job: the new job's key."""
    fresh: bool = False
    """For a requeue: whether the finished steps are forgotten."""
    moved: Moved | None = None
    """For a reschedule: to when and where."""
    running: bool = True
    """For a retry and a discard: whether jobs may be taken from their workers."""


class Answer(msgspec.Struct, frozen=True):
    """The answer for one job, and its status now; None: there is no such job."""

    job: int
    answer: Literal["done", "cancelled", "requested", "refused", "key held", "not found"]
    status: str | None
    new_id: int | None = None
    """The job that a requeue or another run made; of a refusal, the requeue or key's holder."""


def act(request: ActionRequest, ids: Sequence[int]) -> Operation[list[Answer]]:
    """Act on up to 1,000 jobs in one statement; on none if the database refuses a row."""
    params = {"ids": sorted(set(ids)), **_params(request)}
    rows = yield Query(f"job_{request.action.value}", params)
    return [Answer(*row) for row in rows]


def _params(request: ActionRequest) -> dict[str, Any]:
    params: dict[str, Any] = {"why": request.why, "by": request.by}
    if request.action in (Action.REQUEUE, Action.RUN_AGAIN):
        params |= {
            "payload": request.payload,
            "payload_version": request.version,
            "meta": request.meta,
        }
    if request.action is Action.REQUEUE:
        params["fresh"] = request.fresh
    if request.action is Action.RUN_AGAIN:
        params["key"] = request.key
    if request.action in (Action.RETRY, Action.DISCARD):
        params["running"] = request.running
    if request.moved is not None:
        params |= asdict(request.moved)
    return params


class KeyHolder(NamedTuple):
    """The answer for the job that holds a key, and its type."""

    job: int | None
    """None: no job holds it."""
    answer: Literal["done", "cancelled", "requested", "refused", "not found", "ambiguous"]
    """Ambiguous: several types hold the key, each with a row; nothing was changed."""
    status: str | None
    job_type: str | None


def act_on_key(
    request: ActionRequest, key: str, job_type: str | None
) -> Operation[list[KeyHolder]]:
    """Cancel or reschedule the job that holds a key, of one type or of the only such type."""
    params = {"key": key, "job_type": job_type, **_params(request)}
    rows = yield Query(f"key_{request.action.value}", params)
    return [KeyHolder(*row) for row in rows]


def reveal(id: int, why: str, by: str) -> Operation[dict[str, Any] | None]:
    """Read the payload of a job as it is stored, and record who did; None: there is no such job."""
    text = (yield Query("payload_reveal", {"id": id, "why": why, "by": by}))[0][0]
    return None if text is None else msgspec.json.decode(text, type=dict[str, Any])


def act_on_many(
    request: ActionRequest, ids: Sequence[int]
) -> Operation[tuple[list[Answer], Refusals]]:
    """Act on jobs in batches of 1,000, in the order of the ids. Return the answers, and the reason
    for each refused job. In autocommit, as each batch is a transaction of its own."""
    answers: list[Answer] = []
    refusals: Refusals = {}
    # An error that is no job's fault, such as a missing privilege, is raised here once.
    yield from act(replace(request, payload=None), [])
    for batch in _batches(ids):
        isolated = yield from isolate(batch, partial(act, request))
        answers += [answer for some in isolated.answers for answer in some]
        refusals |= dict(isolated.refused)
    return answers, refusals


def _batches(ids: Sequence[int]) -> Iterator[list[int]]:
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), ACTION_MAX):
        yield ordered[start : start + ACTION_MAX]


def choose(statuses: Sequence[Status], limit: int, filters: dict[str, Any]) -> Operation[list[int]]:
    """Find the ids of jobs to act on, ascending; dead jobs only if nobody has resolved them.
    `filters` are the parameters that the three statements share."""
    params = {**filters, "limit": limit}
    live = [status.value for status in statuses if status in _LIVE]
    over = [status.value for status in statuses if status.is_over]
    found: list[int] = []
    if Status.DEAD in statuses:
        found += [row[0] for row in (yield Query("dead_find", params))]
    if live:
        found += [row[0] for row in (yield Query("live_find", params | {"statuses": live}))]
    if over:
        found += [row[0] for row in (yield Query("over_find", params | {"statuses": over}))]
    return sorted(found)[:limit]


_LIVE = (Status.QUEUED, Status.WAITING, Status.RUNNING, Status.FAILED)


class ActionRecord(Record, frozen=True):
    """An action: a row of the action log."""

    at: datetime
    """When it was done, an aware datetime."""
    verb: str
    """What was done, such as `requeue` or `pause`."""
    job: int | None
    """None: to `queue`, or to everything."""
    queue: str | None
    """Name of the queue; None: it was done to a job, a schedule or everything."""
    by: str
    """Who did it: the name that the caller gave, or else the role that logged in."""
    why: str | None
    """The reason; None: none was given."""
    detail_json: str | None
    """The fields of the verb, such as `requeued_as`, as JSON text; None: it has none."""
    schedule: str | None = None
    """Name of the schedule; None: it was done to something else."""

    @property
    def detail(self) -> Any:
        """The fields of the verb; None: it has none."""
        return None if self.detail_json is None else msgspec.json.decode(self.detail_json)


def actions(
    jobs: Sequence[int],
    created: Sequence[datetime],
    queues: Sequence[str],
    waits: Sequence[str],
    until: datetime | None,
    limit: int,
) -> Operation[list[ActionRecord]]:
    """Read the actions on jobs, on their queues, on what they wait for or on everything, in order:
    since the jobs were made, with the actions that made them."""
    asked = {
        "jobs": list(jobs),
        "created": list(created),
        "queues": list(queues),
        "waits": list(waits),
        "since": min(created),
        "until": until,
        "limit": limit,
    }
    return [ActionRecord(*row) for row in (yield Query("actions", asked))]


def action_log(
    since: datetime | timedelta | None, until: datetime | None, limit: int, **of: Any
) -> Operation[list[ActionRecord]]:
    """Read the log; `of` has verb, by and job."""
    params = {"until": until, "limit": limit, **of, **instant_or_ago("since", since)}
    return [ActionRecord(*row) for row in (yield Query("action_log", params))]
