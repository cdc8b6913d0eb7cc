"""Calls of people who act on one job or on many, and the action log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from rota.client.base import LIST_MAX, Caller, Namespace, check_id, check_texts, parse_moment
from rota.client.both import awaitable, both
from rota.client.erase import Erased, erase
from rota.client.requests import (
    OF_MANY,
    ActionResult,
    AnyType,
    act_anew,
    act_by_id_or_key,
    act_on_many,
    act_once,
    check_moved,
    correct_payload,
    make_request,
    make_retry,
    reveal_payload,
)
from rota.client.selection import ActionFilters
from rota.client.timeline import Timeline, read_timeline
from rota.declare.connection import AnyConnection
from rota.model.bounds import check_aware, check_integer
from rota.model.job import Action, Enqueued, Status
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import ActionRecord, ErrorRecord


class ActionCalls(Caller):
    """The frequent actions of an App on one job: cancel and retry."""

    @both
    def cancel(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        job_type: AnyType | str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[Status]:
        """Cancel an unfinished job, by its id or its idempotency key; return its new status.

        `cancelled`: the job was not running, and ends at once. `running`: its worker is asked to
        stop it. The job becomes `cancelled` when its handler stops, or `succeeded` if its handler
        returns. The first reason of two cancels stays.

        Args:
            key: the idempotency key that the job holds, instead of `id`.
            job_type: the type of the job that holds the key, or its name, also a former name.
                Defaults to the only type of which a job holds the key.
            why: the reason, for the action log: one line of at most 500 characters.
            by: the person or program that acts, at most 200 characters. Defaults to `user@host`
                of this process.
            connection: whose transaction the action joins. Until that transaction ends, workers
                cannot write the outcome of the job.

        Raises:
            UsageError: jobs of several types hold the key.
            WrongStatus: the job is dead or finished.
            JobNotFound: there is no such job.
            KeyNotFound: no job holds the key.
        """
        request = make_request(Action.CANCEL, by, why)
        return act_by_id_or_key(request, id, key, job_type)

    acancel = awaitable(cancel)

    @both
    def retry(
        self,
        id: int,
        *,
        payload: Mapping[str, Any] | None = None,
        fresh: bool = False,
        again: bool = False,
        key: str | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[Enqueued]:
        """Run a job now, as fits its status; return the job that runs: the same job, or a new job.

        A queued or failed job is due now. A running job loses its lease: its worker asks the
        handler to stop, and can write nothing more of the job; with a cancel request it becomes
        `cancelled`. A dead job runs again as a new job with the same origin and idempotency key
        (with `scope="live"` the new job takes the key again). Attempts and expiry count from zero.
        The dead job is archived, with a resolution that says who retried it, when, why and as which
        job.

        Args:
            payload: for a dead job, or with `again`: corrected arguments of the handler by name,
                checked if this App declares the type; otherwise the keys of its limit and its
                breaker stay. The old job keeps its own arguments. Defaults to those arguments.
            fresh: for a dead job: forget the finished steps of its handler, and start over.
            again: for a finished job: run its content once more, as a new job with an origin of
                its own and without an idempotency key. The old job stays as it is, even if dead.
            key: with `again`, the idempotency key of the new job. If another job has the key,
                nothing is done: the result is that job, and its `created` is False.

        Raises:
            PayloadError: the payload does not fit the type, or cannot be stored. Nothing changed.
            UsageError: `again` is given with `fresh`, or `key` without `again`.
            WrongStatus: the job is waiting for another job, finished (give `again`), archived, or
                of a status that the arguments do not fit; or the job is dead, and another job has
                taken its key.
            JobNotFound: there is no such job.
        """
        request = make_retry(
            by, why, again=again, fresh=fresh, corrected=payload is not None, key=key
        )
        if payload is not None:
            request = yield from correct_payload(request, check_id(id), payload, self._type_of)
        return (yield from act_anew(request, id))

    aretry = awaitable(retry)


class JobActions(Namespace):
    """`app.jobs`: timelines, the rare actions on one job, all actions on many, and the action log.

    `why`, `by` and `connection` are as in `app.cancel`. Each `…_many` call acts in batches of
    1,000 in the order of the ids, each batch in its own transaction.
    """

    @both
    def timeline(self, id: int, *, connection: AnyConnection | None = None) -> Operation[Timeline]:
        """Return what happened to a job and its retries. Arguments and errors: as `app.get`."""
        return read_timeline(check_id(id))

    atimeline = awaitable(timeline)

    @both
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
        connection: AnyConnection | None = None,
    ) -> Operation[Status]:
        """Move a queued, waiting or failed job to another time, priority or queue; return its
        status.

        The expiry moves with the time. A job that is due goes to the end of its line.

        Args:
            key: as for `app.cancel`.
            job_type: as for `app.cancel`.
            run_at: the earliest time to run: an aware datetime; a past one means now.
            delay: `run_at` as a duration from now. Not together with `run_at`.
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
        return act_by_id_or_key(request, id, key, job_type)

    areschedule = awaitable(reschedule)

    @both
    def discard(
        self,
        id: int,
        *,
        why: str | None = None,
        by: str | None = None,
        connection: AnyConnection | None = None,
    ) -> Operation[Status]:
        """Make an unfinished job dead; return that status.

        The job keeps an idempotency key of the scope "ttl". A running job loses its lease.

        Raises:
            WrongStatus: the job is dead or finished.
            JobNotFound: there is no such job.
        """
        return act_once(Action.DISCARD, id, by, why)

    adiscard = awaitable(discard)

    @both
    def archive(
        self, id: int, *, why: str, by: str | None = None, connection: AnyConnection | None = None
    ) -> Operation[None]:
        """Archive a dead job without another attempt. Its idempotency key becomes free.

        Raises:
            UsageError: no reason is given.
            WrongStatus: the job is not dead, or is already archived.
            JobNotFound: there is no such job.
        """
        yield from act_once(Action.ARCHIVE, id, by, why)

    aarchive = awaitable(archive)

    @both
    def reveal(
        self, id: int, *, why: str, by: str | None = None, connection: AnyConnection | None = None
    ) -> Operation[dict[str, Any]]:
        """Return the payload of a job with its secret values in clear; `***` without their key. The
        action log records who looked, and why.

        Raises:
            UsageError: no reason is given.
            JobNotFound: there is no such job.
        """
        return reveal_payload(check_id(id), by, why)

    areveal = awaitable(reveal)

    @both
    def erase(
        self,
        payload: Mapping[str, Any] | None = None,
        *,
        job: int | None = None,
        why: str,
        by: str | None = None,
    ) -> Operation[Erased]:
        """Erase what jobs were given and what they said, and what quotes them.

        A waiting job is cancelled first, a dead one archived. A running job is erased within an
        hour of its end. Keys of jobs and effects become hashes, and stay taken. If the call stops,
        call again.

        Args:
            payload: jobs whose payload contains this, as in `{"user_id": 42}`.
            job: a job's id, instead.
            why: the reason. It stays, so it must not have a value of the payload.

        Raises:
            UsageError: neither or both of payload and job are given, or there is no such reason.
            JobNotFound: there is no such job.
        """
        return erase(payload, job, why, by)

    aerase = awaitable(erase)

    @both
    def log(
        self,
        *,
        since: datetime | Duration | None = None,
        until: datetime | None = None,
        verb: str | None = None,
        by: str | None = None,
        job: int | None = None,
        limit: int = 100,
    ) -> Operation[list[ActionRecord]]:
        """Read the log of actions on jobs, queues and schedules, the newest first.

        Args:
            since: an aware datetime, or how long ago, such as "2h". Defaults to the oldest kept.
            until: actions before this aware datetime, as for a next page. Defaults to now.
            verb: actions of this kind only, such as "pause". Defaults to all.
            by: actions of this person or program only. Defaults to all.
            job: actions on this job only. Defaults to all.
            limit: maximum number of actions, 1 … 10,000. Defaults to 100.
        """
        check_integer(limit, "limit", 1, LIST_MAX)
        until = None if until is None else check_aware(until, "until")
        return ops.action_log(parse_moment(since, "since"), until, limit, verb=verb, by=by, job=job)

    alog = awaitable(log)

    @both
    def errors(
        self,
        *,
        since: datetime | Duration = "1d",
        job_type: str | None = None,
        limit: int = 100,
    ) -> Operation[list[ErrorRecord]]:
        """List how attempts failed, each error once, the most recent first.

        An error is a class, a response code and a message of a job type, without its addresses and
        words with digits. The call reads the newest 30,000 failed attempts, at most 1,000 of a
        type, class and code, so that a flood hides no rare error.

        Args:
            since: an aware datetime, or how long ago. Defaults to a day.
            job_type: errors of this type only. Defaults to all types.
            limit: maximum number of errors, 1 … 10,000. Defaults to 100.
        """
        check_integer(limit, "limit", 1, LIST_MAX)
        check_texts(job_type=job_type)
        return ops.errors(parse_moment(since, "since"), job_type, limit)

    aerrors = awaitable(errors)

    @both
    def cancel_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> Operation[ActionResult]:
        """Cancel jobs; without `status` all unfinished ones that match.

        Args:
            filters: the keys of `ActionFilters`, each documented there; at least one filter.

        Raises:
            UsageError: no filter is given, or the action is impossible for jobs with that status.
                Nothing changed.
        """
        return act_on_many(make_request(Action.CANCEL, by, why), filters)

    acancel_many = awaitable(cancel_many)

    @both
    def retry_many(
        self,
        *,
        fresh: bool = False,
        again: bool = False,
        why: str | None = None,
        by: str | None = None,
        **filters: Unpack[ActionFilters],
    ) -> Operation[ActionResult]:
        """Retry jobs as `app.retry`, each as fits its status; without `status` failed and dead
        jobs, with `fresh` dead jobs. Running jobs need `status="running"`. With `again`, `status`
        is required, for finished jobs also `since`. Filters and errors are as in
        `cancel_many`."""
        return act_on_many(make_retry(by, why, again=again, fresh=fresh), filters)

    aretry_many = awaitable(retry_many)

    @both
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
    ) -> Operation[ActionResult]:
        """Move jobs to another time, priority or queue, as `reschedule`; without `status` queued
        and failed jobs. `to_queue` is the new queue. Filters and errors are as in
        `cancel_many`."""
        moved = check_moved(run_at, delay, priority, to_queue, names=OF_MANY)
        return act_on_many(make_request(Action.RESCHEDULE, by, why, moved), filters)

    areschedule_many = awaitable(reschedule_many)

    @both
    def discard_many(
        self, *, why: str | None = None, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> Operation[ActionResult]:
        """Make jobs dead; without `status` queued, waiting and failed ones. Filters and errors are
        as in `cancel_many`."""
        return act_on_many(make_request(Action.DISCARD, by, why), filters)

    adiscard_many = awaitable(discard_many)

    @both
    def archive_many(
        self, *, why: str, by: str | None = None, **filters: Unpack[ActionFilters]
    ) -> Operation[ActionResult]:
        """Archive dead jobs without another attempt. Filters and errors: as `cancel_many`."""
        return act_on_many(make_request(Action.ARCHIVE, by, why), filters)

    aarchive_many = awaitable(archive_many)
