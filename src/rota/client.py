"""Enqueue, get, find, join, cancel: what an application asks of the database, sync and async."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rota.errors import JobNotFound, JoinTimeout, PayloadError, RotaError, UsageError, WrongStatus
from rota.failure import one_line
from rota.job import CANCELLABLE, Job, Status
from rota.job_type import Enqueued, NewJob
from rota.jsonb import PAYLOAD_BYTES_LEAST, fits, text_bytes
from rota.options import check_integer, check_text
from rota.store import ops
from rota.store.ops import CancelAnswer, Filter, NewRow

if TYPE_CHECKING:
    from rota.store.db import Database, Operation

JOIN_POLL_S = (0.02, 0.5)
"""The first and the longest pause of a join. The end of a job notifies nobody: that would cost every job for the few that are waited for."""
LIST_MAX = 10_000
ID_MAX = 2**63 - 1


class Client:
    """What an App does with the database. Implements the `Sender` of its job types."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._payload_bytes_max: int | None = None
        self._warned = False

    # Enqueue

    def enqueue(self, job: NewJob, /) -> Enqueued:
        """Insert one job."""
        self._warn_in_loop("enqueue")
        _check_new(job)
        return self._database().run(self._enqueue(job), job.chosen.connection)

    async def aenqueue(self, job: NewJob, /) -> Enqueued:
        """Insert one job."""
        _check_new(job)
        return await self._database().arun(self._enqueue(job), job.chosen.connection)

    def enqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]:
        """Insert jobs of any types, all or none; results are in the order of the input."""
        self._warn_in_loop("enqueue_many")
        listed = _listed(jobs)
        return self._database().run(self._enqueue_many(listed), _connection(listed, connection), atomic=True)

    async def aenqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]:
        """Insert jobs of any types, all or none; results are in the order of the input."""
        listed = _listed(jobs)
        return await self._database().arun(self._enqueue_many(listed), _connection(listed, connection), atomic=True)

    def _enqueue(self, job: NewJob) -> Operation[Enqueued]:
        yield from self._refuse_large([job], indexed=False)
        try:
            inserted = yield from ops.insert(_row(job))
        except PayloadError as error:
            raise self._refused([job], error, indexed=False) from None
        return Enqueued(inserted.id, inserted.created, inserted.status)

    def _enqueue_many(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        yield from self._refuse_large(jobs, indexed=True)
        try:
            inserted = yield from ops.insert_many([_row(job) for job in jobs])
        except PayloadError as error:
            raise self._refused(jobs, error, indexed=True) from None
        return [Enqueued(one.id, one.created, one.status) for one in inserted]

    def _refuse_large(self, jobs: Sequence[NewJob], *, indexed: bool) -> Operation[None]:
        """Refuse here what the CHECK would refuse there, before it aborts the caller's transaction."""
        for index, job in enumerate(jobs):
            for argument, text in ((None, job.payload_json), ("meta", job.chosen.meta_json or "")):
                if fits(text, PAYLOAD_BYTES_LEAST):
                    continue
                if self._payload_bytes_max is None:
                    self._payload_bytes_max = yield from ops.payload_bytes_max()
                size = text_bytes(text)
                if size > self._payload_bytes_max:
                    self._payload_bytes_max = yield from ops.payload_bytes_max()  # raised since it was read, perhaps
                if size > self._payload_bytes_max:
                    raise PayloadError(job.job_type.name, argument, too_large(size, self._payload_bytes_max), index if indexed else None)

    def _refused(self, jobs: Sequence[NewJob], error: PayloadError, *, indexed: bool) -> PayloadError:
        """Say which job the CHECK refused: the limit was lowered since it was read, so it is the largest. The transaction is lost this once."""
        self._payload_bytes_max = None
        index = max(range(len(jobs)), key=lambda at: text_bytes(jobs[at].payload_json))
        return PayloadError(jobs[index].job_type.name, None, error.reason, index if indexed else None)

    def _warn_in_loop(self, verb: str) -> None:
        if self._warned:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._warned = True
        warnings.warn(f"{verb}() blocks the running event loop; await a{verb}() instead", RuntimeWarning, stacklevel=4)

    # Act

    def cancel(self, id: int, why: str | None, connection: Any) -> Status:
        """Call a job off."""
        self._warn_in_loop("cancel")
        return self._database().run(_cancel(id, why), connection)

    async def acancel(self, id: int, why: str | None, connection: Any) -> Status:
        """Call a job off."""
        return await self._database().arun(_cancel(id, why), connection)

    # Read

    def get(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return self._database().run(_get(id))

    async def aget(self, id: int) -> Job:
        """Return a job, live or over. Raises JobNotFound."""
        return await self._database().arun(_get(id))

    def jobs(self, wanted: Filter) -> list[Job]:
        """Find jobs, the newest first."""
        return self._database().run(ops.find(_checked(wanted)))

    async def ajobs(self, wanted: Filter) -> list[Job]:
        """Find jobs, the newest first."""
        return await self._database().arun(ops.find(_checked(wanted)))

    def join(self, id: int, timeout_s: float | None) -> Job:
        """Wait until a job is over or dead."""
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := self.get(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job

    async def ajoin(self, id: int, timeout_s: float | None) -> Job:
        """Wait until a job is over or dead."""
        started, pause_s = time.monotonic(), JOIN_POLL_S[0]
        while not (job := await self.aget(id)).status.is_settled:
            _refuse_overdue(job, started, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, JOIN_POLL_S[1])
        return job


def _cancel(id: int, why: str | None) -> Operation[Status]:
    _check_id(id)
    [answer] = yield from ops.cancel([id], reason(why))
    refusal = refused(answer)
    if refusal is not None:
        raise refusal
    return Status.CANCELLED if answer.answer == "cancelled" else Status.RUNNING


def reason(why: object) -> str | None:
    """What somebody gave as their reason, fit to be stored. Raises UsageError."""
    if why is not None and not isinstance(why, str):
        raise UsageError(f"why must be a text, not {why!r}")
    return (one_line(why) if why else "") or None


def refused(answer: CancelAnswer) -> RotaError | None:
    """Why a job was not called off; None when it was, or will be."""
    if answer.status is None:
        return JobNotFound(answer.job)
    if answer.answer != "refused":
        return None
    advice = "; a dead job stays for a person to look at" if answer.status == Status.DEAD else ""
    return WrongStatus(answer.job, answer.status, CANCELLABLE, advice)


def _get(id: int) -> Operation[Job]:
    _check_id(id)
    found = yield from ops.find(Filter(ids=[id]))
    if not found:
        raise JobNotFound(id)
    return found[0]


def too_large(size: int, most: int) -> str:
    """Why a payload or a meta is refused."""
    return f"{size:,} bytes is over the limit of {most:,}: store the data elsewhere and pass a reference, such as its id"


def _check_id(given: object) -> None:
    check_integer(given, "a job's id", 1, ID_MAX)


def _refuse_overdue(job: Job, started: float, timeout_s: float | None) -> None:
    if timeout_s is not None and time.monotonic() - started >= timeout_s:
        raise JoinTimeout(job.id, job.status, timeout_s)


def _checked(wanted: Filter) -> Filter:
    check_integer(wanted.limit, "limit", 1, LIST_MAX)
    if wanted.before is not None:
        check_integer(wanted.before, "before", 1, ID_MAX)
    for name, most in (("job_type", 200), ("queue", 100), ("idempotency_key", 255), ("error_type", 200)):
        if getattr(wanted, name) is not None:
            check_text(getattr(wanted, name), name, most)
    if wanted.status is not None and wanted.status not in list(Status):
        raise UsageError(f"status must be one of {', '.join(Status)}, not {wanted.status!r}")
    return wanted


def _listed(jobs: Iterable[NewJob]) -> list[NewJob]:
    listed = list(jobs)
    for index, job in enumerate(listed):
        _check_new(job, f"job {index} of the list")
    return listed


def _check_new(job: object, what: str = "the job") -> None:
    if not isinstance(job, NewJob):
        raise UsageError(f"{what} is {job!r}; make it with job_type.new(…)")


def _connection(jobs: Sequence[NewJob], given: Any) -> Any:
    """The one connection of a bulk: the argument, or what its jobs were made with."""
    found = {id(job.chosen.connection): job.chosen.connection for job in jobs if job.chosen.connection is not None}
    if given is not None:
        found[id(given)] = given
    if len(found) > 1:
        raise UsageError("the jobs of one enqueue_many name different connections; they are inserted together, so name one")
    return next(iter(found.values()), None)


def _row(job: NewJob) -> NewRow:
    chosen, settings = job.chosen, job.job_type.settings
    return NewRow(
        queue=chosen.queue or settings.queue,
        job_type=job.job_type.name,
        payload=job.payload_json,
        payload_version=settings.version,
        priority=settings.priority if chosen.priority is None else chosen.priority,
        run_at=chosen.run_at,
        delay_s=chosen.delay_s,
        expires_s=settings.expires_s if chosen.expires_s is None else chosen.expires_s,
        max_attempts=chosen.max_attempts,
        idempotency_key=chosen.idempotency_key,
        meta=chosen.meta_json,
    )
