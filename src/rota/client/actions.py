"""Actions of people on jobs: the calls, their operations, and the reasons of refusals.

The command line uses the same operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from rota.client.base import (
    LIST_MAX,
    Caller,
    Namespace,
    check_by,
    check_id,
    check_texts,
    check_why,
    parse_moment,
)
from rota.client.enqueue import refuse_too_large
from rota.client.selection import ActionFilters, find_jobs
from rota.declare.job_type import Enqueued, JobType
from rota.declare.options import EnqueueOptions
from rota.declare.payload import encode_untyped
from rota.errors import JobNotFound, KeyNotFound, RotaError, UsageError, WrongStatus
from rota.model.bounds import KEY_MAX, check_integer, check_text
from rota.model.failure import list_names
from rota.model.job import Action, Status
from rota.model.states import takes
from rota.model.units import Duration
from rota.store import ops
from rota.store.ops import ActionRecord, ActionRequest, Answer, Filter, Moved

if TYPE_CHECKING:
    from rota.store.driver import Operation


AnyType = JobType[..., ..., Any]


class ActionResult(msgspec.Struct, frozen=True):
    """The result of an action on many jobs."""

    done: list[int]
    """Ids of the jobs on which the action was done, ascending."""
    new_ids: dict[int, int]
    """Id of the new job, by the id of the job that was requeued or runs again."""
    refused: dict[int, str]
    """Why the action was refused, by the id of the job."""


class ActionCalls(Caller):
    """The frequent actions of an App on one job: cancel, retry now, reschedule, requeue.

    Each takes a reason, `why` (one line of at most 500 characters), and the person or program that
    acts, `by` (at most 200 characters; defaults to `user@host` of this process). The action joins
    the transaction of `connection`. Until that ends, workers cannot write the outcome of the job.
    """

    def cancel(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        job_type: AnyType | str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Status:
        """Cancel an unfinished job, by its id or its idempotency key; return its new status.

        `cancelled`: the job was not running, and ends at once. `running`: its worker is asked to
        stop it. The job becomes `cancelled` when its handler stops, `succeeded` if its handler
        returns all the same. If a running job is cancelled twice, the first reason stays.

        Args:
            key: the idempotency key that the job holds, instead of `id`.
            job_type: the type of the job that holds the key, or its name, also a former one.
                Defaults to the only type of which a job holds it.

        Raises:
            UsageError: jobs of several types hold the key.
            WrongStatus: the job is dead or finished.
            JobNotFound: there is no such job.
            KeyNotFound: no job holds the key.
        """
        request = make_request(Action.CANCEL, by, why)
        return self._run(_act_on(request, id, key, job_type), connection)

    async def acancel(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        job_type: AnyType | str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Status:
        """Cancel an unfinished job, by its id or its idempotency key; return its new status. Raises
        as `cancel`."""
        request = make_request(Action.CANCEL, by, why)
        return await self._arun(_act_on(request, id, key, job_type), connection)

    def retry_now(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make a queued, failed or running job due now; return its new status.

        That is `queued`, or `cancelled` for a running job with a cancel request. A running job
        loses its lease: its worker can write nothing more of it, and asks its handler to stop. The
        handler may continue until it notices.

        Raises:
            WrongStatus: the job is waiting for another job, dead or finished.
            JobNotFound: there is no such job.
        """
        return self._run(_move(Action.RETRY_NOW, id, by, why), connection)

    async def aretry_now(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make a job due now; return its new status. Raises as `retry_now`."""
        return await self._arun(_move(Action.RETRY_NOW, id, by, why), connection)

    def reschedule(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        job_type: AnyType | str | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Status:
        """Move a queued or failed job to another time, priority or queue; return its status.

        With the time its expiry moves: it has as long to start as before. A job that is due goes to
        the end of its line.

        Args:
            key: as for `cancel`.
            job_type: as for `cancel`.
            run_at: the earliest time to run: an aware datetime; one in the past means now.
            delay: the same as a duration from now. Not together with `run_at`.
            priority: −100 … 100.
            queue: 1 … 100 printable characters.

        Raises:
            UsageError: nothing to change is given, an option is out of range, or jobs of several
                types hold the key.
            WrongStatus: the job is neither queued nor failed: a worker may have begun it.
            JobNotFound: there is no such job.
            KeyNotFound: no job holds the key.
        """
        moved = check_moved(run_at, delay, priority, queue)
        request = make_request(Action.RESCHEDULE, by, why, moved)
        return self._run(_act_on(request, id, key, job_type), connection)

    async def areschedule(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        job_type: AnyType | str | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        queue: str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Status:
        """Move a queued or failed job to another time, priority or queue; return its status. Raises
        as `reschedule`."""
        moved = check_moved(run_at, delay, priority, queue)
        request = make_request(Action.RESCHEDULE, by, why, moved)
        return await self._arun(_act_on(request, id, key, job_type), connection)

    def requeue(
        self,
        id: int,
        *,
        payload: Mapping[str, Any] | None = None,
        fresh: bool = False,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Enqueued:
        """Run a dead job again, as a new job; return the new job.

        The new job has the same origin and takes over the idempotency key. Its attempts and its
        expiry count from zero. The dead job is archived, with a resolution that says who requeued
        it, when, why and as which job.

        Args:
            payload: corrected arguments of the handler by name, checked against the type if this
                App declares it. The dead job keeps its own. Defaults to the dead job's.
            fresh: forget the steps that its handler finished, and start over.

        Raises:
            PayloadError: the payload does not fit the type, or cannot be stored. Nothing changed.
            WrongStatus: the job is not dead, or is already archived.
            JobNotFound: there is no such job.
        """
        return self._run(self._requeue(id, payload, fresh, by, why), connection)

    async def arequeue(
        self,
        id: int,
        *,
        payload: Mapping[str, Any] | None = None,
        fresh: bool = False,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Enqueued:
        """Run a dead job again, as a new job; return the new job. Raises as `requeue`."""
        return await self._arun(self._requeue(id, payload, fresh, by, why), connection)

    def _requeue(
        self,
        id: int,
        payload: Mapping[str, Any] | None,
        fresh: bool,
        by: str | None,
        why: str | None,
    ) -> Operation[Enqueued]:
        request = replace(make_request(Action.REQUEUE, by, why), fresh=fresh)
        check_id(id)
        if payload is not None:
            request = yield from correct_payload(request, id, payload, self._type_of)
        return (yield from _repeat(request, id))

    def _type_of(self, name: str) -> JobType[..., ..., Any] | None:
        """Return the declared type with that name or alias; None if this client knows none."""
        return None


class Actions(Namespace):
    """`app.actions`: the rare actions on one job, all actions on many, and the action log.

    `why`, `by` and `connection` are those of `app.cancel`. Each `…_many` call acts in batches of
    1,000 in the order of the ids, each batch in its own transaction.
    """

    def bury(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make an unfinished job dead; return that status.

        The job keeps its idempotency key and waits for a person. A running job loses its lease.

        Raises:
            WrongStatus: the job is dead or finished.
            JobNotFound: there is no such job.
        """
        return self._run(_move(Action.BURY, id, by, why), connection)

    async def abury(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make an unfinished job dead; return that status. Raises as `bury`."""
        return await self._arun(_move(Action.BURY, id, by, why), connection)

    def ignore(self, id: int, *, why: str, by: str | None = None, connection: Any = None) -> None:
        """Archive a dead job without another attempt. Its idempotency key becomes free.

        Raises:
            UsageError: no reason is given.
            WrongStatus: the job is not dead, or is already archived.
            JobNotFound: there is no such job.
        """
        self._run(_move(Action.IGNORE, id, by, why), connection)

    async def aignore(
        self, id: int, *, why: str, by: str | None = None, connection: Any = None
    ) -> None:
        """Archive a dead job without another attempt. Raises as `ignore`."""
        await self._arun(_move(Action.IGNORE, id, by, why), connection)

    def run_again(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Enqueued:
        """Run a finished or dead job again, as a new job with the same content; return the new job.

        The new job has its own origin, so that every step is done again, and no idempotency key.
        The old job stays as it is.

        Raises:
            WrongStatus: the job is neither finished nor dead.
            JobNotFound: there is no such job.
        """
        return self._run(_run_again(id, by, why), connection)

    async def arun_again(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Enqueued:
        """Run a finished or dead job again, as a new job; return it. Raises as `run_again`."""
        return await self._arun(_run_again(id, by, why), connection)

    def log(
        self, *, since: datetime | Duration | None = None, limit: int = 100
    ) -> list[ActionRecord]:
        """Read the log of actions on jobs, queues and schedules, the newest first.

        Args:
            since: an aware datetime, or how long ago, such as "2h". Defaults to the oldest kept.
            limit: maximum number of actions, 1 … 10,000. Defaults to 100.

        Raises:
            UsageError: an argument is out of range.
        """
        return self._run(_read_log(since, limit))

    async def alog(
        self, *, since: datetime | Duration | None = None, limit: int = 100
    ) -> list[ActionRecord]:
        """Read the log of actions, as `log`."""
        return await self._arun(_read_log(since, limit))

    def cancel_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Cancel jobs; without `status` all unfinished ones that match.

        Args:
            filters: those of `ActionFilters`, each documented there; at least one of them.

        Raises:
            UsageError: no filter is given, or the action is impossible for jobs with that status.
                Nothing changed.
        """
        return self._run(_act_on_many(Action.CANCEL, by, why, filters))

    async def acancel_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Cancel jobs, as `cancel_many`."""
        return await self._arun(_act_on_many(Action.CANCEL, by, why, filters))

    def retry_now_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Make jobs due now; without `status` failed ones. With `status="running"` jobs lose their
        leases. Filters and errors are those of `cancel_many`."""
        return self._run(_act_on_many(Action.RETRY_NOW, by, why, filters))

    async def aretry_now_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Make jobs due now, as `retry_now_many`."""
        return await self._arun(_act_on_many(Action.RETRY_NOW, by, why, filters))

    def reschedule_many(
        self,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        to_queue: str | None = None,
        why: str | None = None,
        by: str | None = None,
        **filters: Unpack[ActionFilters],
    ) -> ActionResult:
        """Move jobs to another time, priority or queue, as `app.reschedule`; without `status`
        queued and failed ones. `to_queue` is the new queue: `queue` is a filter. Filters and errors
        are those of `cancel_many`."""
        moved = check_moved(run_at, delay, priority, to_queue, names=_OF_MANY)
        return self._run(_act_on_many(Action.RESCHEDULE, by, why, filters, moved))

    async def areschedule_many(
        self,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        to_queue: str | None = None,
        why: str | None = None,
        by: str | None = None,
        **filters: Unpack[ActionFilters],
    ) -> ActionResult:
        """Move jobs to another time, priority or queue, as `reschedule_many`."""
        moved = check_moved(run_at, delay, priority, to_queue, names=_OF_MANY)
        return await self._arun(_act_on_many(Action.RESCHEDULE, by, why, filters, moved))

    def bury_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Make jobs dead; without `status` queued, waiting and failed ones. Filters and errors are
        those of `cancel_many`."""
        return self._run(_act_on_many(Action.BURY, by, why, filters))

    async def abury_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Make jobs dead, as `bury_many`."""
        return await self._arun(_act_on_many(Action.BURY, by, why, filters))

    def requeue_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Requeue dead jobs. Filters and errors are those of `cancel_many`."""
        return self._run(_act_on_many(Action.REQUEUE, by, why, filters))

    async def arequeue_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Requeue dead jobs, as `requeue_many`."""
        return await self._arun(_act_on_many(Action.REQUEUE, by, why, filters))

    def ignore_many(
        self, *, why: str, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Archive dead jobs without another attempt. Filters and errors are those of
        `cancel_many`."""
        return self._run(_act_on_many(Action.IGNORE, by, why, filters))

    async def aignore_many(
        self, *, why: str, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Archive dead jobs without another attempt, as `ignore_many`."""
        return await self._arun(_act_on_many(Action.IGNORE, by, why, filters))

    def run_again_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Run finished or dead jobs again, as new jobs. `status` is required, for finished jobs
        also `since`. Other filters and errors are those of `cancel_many`."""
        return self._run(_act_on_many(Action.RUN_AGAIN, by, why, filters))

    async def arun_again_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> ActionResult:
        """Run finished or dead jobs again, as `run_again_many`."""
        return await self._arun(_act_on_many(Action.RUN_AGAIN, by, why, filters))


_OF_MANY = "run_at, delay, priority and to_queue"


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
    if action is Action.IGNORE and reason is None:
        raise UsageError(f"{name_of_why} is required: it records why these jobs are ignored")
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


def _read_log(since: datetime | Duration | None, limit: int) -> Operation[list[ActionRecord]]:
    check_integer(limit, "limit", 1, LIST_MAX)
    return (yield from ops.action_log(parse_moment(since, "since"), limit))


# One job


def _move(action: Action, id: int, by: str | None, why: str | None) -> Operation[Status]:
    answer = yield from _act_on_one(make_request(action, by, why), id)
    return Status(answer.status or Status.DEAD)


def _act_on(
    request: ActionRequest, id: int | None, key: str | None, job_type: AnyType | str | None
) -> Operation[Status]:
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
    """Cancel or reschedule the job that holds a key.

    Raises KeyNotFound, WrongStatus, and UsageError if jobs of several types hold it.
    """
    check_text(key, "key", KEY_MAX)
    name = job_type.name if isinstance(job_type, JobType) else job_type
    check_texts(job_type=name)
    holders = yield from ops.act_on_key(request, key, name)
    holder = holders[0]
    if holder.answer == "ambiguous":
        types = list_names(one.job_type or "" for one in holders)
        raise UsageError(f"jobs of several types hold the key {key!r}: {types}; name one of them")
    if holder.job is None or holder.answer == "not found":
        raise KeyNotFound(key, name)
    answer = Answer(holder.job, holder.answer, holder.status)
    refusal = explain_refusal(request.action, answer)
    if refusal is not None:
        raise refusal
    return answer


def _run_again(id: int, by: str | None, why: str | None) -> Operation[Enqueued]:
    return (yield from _repeat(make_request(Action.RUN_AGAIN, by, why), id))


def _repeat(request: ActionRequest, id: int) -> Operation[Enqueued]:
    answer = yield from _act_on_one(request, id)
    assert answer.new_id is not None
    return Enqueued(answer.new_id, True, Status.QUEUED.value)


def _act_on_one(request: ActionRequest, id: int) -> Operation[Answer]:
    [answer] = yield from ops.act(request, [check_id(id)])
    refusal = explain_refusal(request.action, answer)
    if refusal is not None:
        raise refusal
    return answer


def correct_payload(
    request: ActionRequest,
    id: int,
    payload: Mapping[str, Any],
    type_of: Callable[[str], JobType[..., ..., Any] | None],
) -> Operation[ActionRequest]:
    """Return a requeue with a corrected payload, checked against the job's type and the payload
    limit. Raises PayloadError, JobNotFound."""
    if not isinstance(payload, Mapping):
        raise UsageError(f"payload must be a mapping of the handler's arguments, not {payload!r}")
    found = yield from ops.find(Filter(ids=[id]))
    if not found:
        raise JobNotFound(id)
    name = found[0].job_type
    job_type = type_of(name)
    text = (
        encode_untyped(name, dict(payload))
        if job_type is None
        else job_type.codec.encode((), dict(payload))
    )
    yield from refuse_too_large(name, text, None)
    version = None if job_type is None else job_type.options.version
    return replace(request, payload=text, payload_version=version)


# Many jobs


def _act_on_many(
    action: Action,
    by: str | None,
    why: str | None,
    filters: ActionFilters,
    moved: Moved | None = None,
) -> Operation[ActionResult]:
    request = make_request(action, by, why, moved)
    ids = yield from find_jobs(action, filters)
    answers, refusals = yield from ops.act_on_many(request, ids)
    return sort_answers(action, answers, refusals)


# Answers


def explain_refusal(action: Action, answer: Answer) -> RotaError | None:
    """Return why an action on a job was refused; None if it was not."""
    if answer.status is None:
        return JobNotFound(answer.job)
    if answer.answer != "refused":
        return None
    wanted = tuple(status.value for status in takes(action))
    return WrongStatus(answer.job, wanted, answer.status, _advise(action, answer))


def _advise(action: Action, answer: Answer) -> str:
    if answer.new_id is not None:
        return f"; it was requeued as job {answer.new_id}"
    if answer.status == Status.DEAD and action in (
        Action.CANCEL,
        Action.RETRY_NOW,
        Action.RESCHEDULE,
    ):
        return "; requeue or ignore a dead job instead"
    return ""


def sort_errors(
    action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]
) -> dict[int, RotaError]:
    """Return why an action was refused, by the ids of the jobs on which it was."""
    errors = {answer.job: explain_refusal(action, answer) for answer in answers}
    errors |= {
        job: RotaError(f"job {job}: the database refuses: {why}") for job, why in refusals.items()
    }
    return {job: error for job, error in sorted(errors.items()) if error is not None}


def sort_answers(
    action: Action, answers: Sequence[Answer], refusals: Mapping[int, str]
) -> ActionResult:
    """Return the result of an action on many jobs."""
    errors = sort_errors(action, answers, refusals)
    done = [answer for answer in answers if answer.job not in errors]
    return ActionResult(
        done=[answer.job for answer in done],
        new_ids={answer.job: answer.new_id for answer in done if answer.new_id is not None},
        refused={job: str(error) for job, error in errors.items()},
    )
