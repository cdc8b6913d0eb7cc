"""Selects jobs for an action on many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rota.client.base import (
    TEXTS_MAX,
    JobFilters,
    check_id,
    check_texts,
    encode_part,
    parse_moment,
    refuse_unknown,
)
from rota.errors import UsageError
from rota.model.bounds import check_integer
from rota.model.job import Action, Status, StatusName
from rota.model.states import takes
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import ActionRequest

MANY_MAX = 1_000_000
"""Most jobs of one action; memory holds their ids."""
MANY = 100_000
"""Most jobs of one action by default."""

STATUSES_BY_DEFAULT: Mapping[Action, Sequence[Status]] = {
    Action.CANCEL: takes(Action.CANCEL),
    Action.RETRY: (Status.FAILED, Status.DEAD),
    Action.RESCHEDULE: takes(Action.RESCHEDULE),
    Action.DISCARD: (Status.QUEUED, Status.WAITING, Status.FAILED),
    Action.REQUEUE: (Status.DEAD,),
    Action.ARCHIVE: (Status.DEAD,),
    Action.RUN_AGAIN: (),
}
"""The statuses of a filter that has none. Unasked, no action takes a lease or repeats a success."""


class ActionFilters(JobFilters, total=False):
    """The filters of a `…_many` call. At least one besides `limit` is required; all must match."""

    ids: Iterable[int] | None
    """These jobs. Not with other filters."""
    status: StatusName | None
    """Jobs with this status. The default depends on the action."""
    key: str | None
    """Jobs with this key."""
    error_type: str | None
    """Jobs whose last error has this class, by its stored name."""
    error: str | None
    """Jobs with this text in their last error, 1 … 500 characters; "…" stands for any text. Case is
    ignored."""
    release: str | None
    """Jobs last attempted by this release of your code."""
    since: datetime | Duration | None
    """Jobs that failed, died or finished since then; jobs without a failure: created since then.
    An aware datetime, or how long ago, such as "2h"."""
    limit: int
    """Maximum number of jobs, the oldest first, 1 … 1,000,000. Defaults to 100,000."""


def find_jobs(
    request: ActionRequest, filters: ActionFilters
) -> Operation[tuple[ActionRequest, list[int]]]:
    """Return the ids of the jobs that filters select, and the request for them: a job that begins
    meanwhile is not taken from its worker. Raises UsageError as `select_jobs`."""
    given: dict[str, Any] = {
        name: value
        for name, value in refuse_unknown(filters, ActionFilters).items()
        if value is not None
    }
    if "ids" not in given:
        statuses, limit, wanted = select_jobs(request.action, given)
        fits = replace(request, running=Status.RUNNING in statuses)
        return fits, (yield from ops.choose(statuses, limit, wanted))
    if len(given) > 1:
        raise UsageError("give ids or filters, not both")
    if not isinstance(given["ids"], Iterable):
        raise UsageError(f"ids must be the ids of jobs, as in [1, 2], not {given['ids']!r}")
    return request, [check_id(id_) for id_ in given["ids"]]


def select_jobs(
    action: Action, given: Mapping[str, Any]
) -> tuple[Sequence[Status], int, dict[str, Any]]:
    """Return what `ops.choose` takes for filters without `ids`. Raises UsageError: a filter is out
    of range, none is given, or the action is impossible for jobs with that status."""
    texts = {name: given.get(name) for name in TEXTS_MAX}
    parts = {name: encode_part(given.get(name), name) for name in ("payload", "meta")}
    status, since, limit = given.get("status"), given.get("since"), given.get("limit", MANY)
    filters = (status, *texts.values(), *parts.values(), since)
    if filters.count(None) == len(filters):
        raise UsageError(
            f"{action.value}: give ids, or at least one of "
            "status, job_type, queue, key, group_key, payload, meta, error_type, error, release "
            "and since"
        )
    check_texts(**texts)
    check_integer(limit, "limit", 1, MANY_MAX)
    statuses = _select_statuses(action, status)
    if since is None and any(status.is_over for status in statuses):
        raise UsageError(
            f"{action.value}: give since to select finished jobs by the time they finished"
        )
    since = ops.instant_or_ago("since", parse_moment(since, "since"))
    return statuses, limit, {**texts, **parts, **since}


def _select_statuses(action: Action, status: str | None) -> Sequence[Status]:
    possible = takes(action)
    if status is None:
        if not STATUSES_BY_DEFAULT[action]:
            raise UsageError(f"{action.value}: give a status, one of {', '.join(possible)}")
        return STATUSES_BY_DEFAULT[action]
    if status not in possible:
        raise UsageError(
            f"{action.value}: status must be one of {', '.join(possible)}, not {str(status)!r}"
        )
    return (Status(status),)
