"""How jobs come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rota.client.base import Asking
from rota.declare.job_type import Enqueued, NewJob
from rota.declare.jsonb import PAYLOAD_BYTES_LEAST, fits, text_bytes
from rota.errors import PayloadError, UsageError
from rota.store import ops
from rota.store.errors import PayloadRefused
from rota.store.ops import NewRow

if TYPE_CHECKING:
    from rota.store.driver import Operation


class Enqueueing(Asking):
    """Inserts jobs. Implements the `Sender` of job types."""

    _payload_bytes_max: int | None = None

    def enqueue(self, job: NewJob, /) -> Enqueued:
        """Insert a job made with `job_type.new(…)`. Raises as `JobType.enqueue`."""
        _check_new(job)
        return self._run(self._enqueue(job), job.chosen.connection)

    async def aenqueue(self, job: NewJob, /) -> Enqueued:
        """Insert a job made with `job_type.new(…)`."""
        _check_new(job)
        return await self._arun(self._enqueue(job), job.chosen.connection)

    def enqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]:
        """Insert jobs of any types, all or none, one INSERT per 1,000; results are in the order of the input."""
        listed = _listed(jobs)
        return self._run(self._enqueue_many(listed), _connection(listed, connection), atomic=True)

    async def aenqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: Any = None
    ) -> list[Enqueued]:
        """Insert jobs of any types, all or none; results are in the order of the input."""
        listed = _listed(jobs)
        return await self._arun(
            self._enqueue_many(listed), _connection(listed, connection), atomic=True
        )

    def _enqueue(self, job: NewJob) -> Operation[Enqueued]:
        yield from self._refuse_large([job], indexed=False)
        try:
            inserted = yield from ops.insert(_row(job))
        except PayloadRefused as error:
            raise self._refused([job], error, indexed=False) from None
        return Enqueued(inserted.id, inserted.created, inserted.status)

    def _enqueue_many(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        yield from self._refuse_large(jobs, indexed=True)
        try:
            inserted = yield from ops.insert_many([_row(job) for job in jobs])
        except PayloadRefused as error:
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
                    reason = too_large(size, self._payload_bytes_max)
                    at = index if indexed else None
                    raise PayloadError(job.job_type.name, argument, reason, at)

    def _refused(
        self, jobs: Sequence[NewJob], error: PayloadRefused, *, indexed: bool
    ) -> PayloadError:
        """Say which job the CHECK refused: the limit was lowered since it was read, so it is the largest. The transaction is lost this once."""
        self._payload_bytes_max = None
        index = max(range(len(jobs)), key=lambda at: text_bytes(jobs[at].payload_json))
        return PayloadError(
            jobs[index].job_type.name, None, error.reason, index if indexed else None
        )


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
    found = {
        id(job.chosen.connection): job.chosen.connection
        for job in jobs
        if job.chosen.connection is not None
    }
    if given is not None:
        found[id(given)] = given
    if len(found) > 1:
        raise UsageError(
            "the jobs of one enqueue_many name different connections; they are inserted together, so name one"
        )
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


def too_large(size: int, most: int) -> str:
    """Why a payload or a meta is refused."""
    return f"{size:,} bytes is over the limit of {most:,}: store the data elsewhere and pass a reference, such as its id"
