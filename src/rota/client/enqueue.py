"""Enqueueing jobs, one or many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rota.client.base import Caller
from rota.client.carry import carry_meta
from rota.declare.job_type import Enqueued, NewJob
from rota.declare.jsonb import PAYLOAD_BYTES_LEAST, fits, text_bytes
from rota.declare.options import EnqueueOptions
from rota.errors import PayloadError, UsageError
from rota.store import ops
from rota.store.db import LOCK_TIMEOUT_S, Patience
from rota.store.errors import PayloadRefused
from rota.store.ops import NewRow

if TYPE_CHECKING:
    from rota.declare.around import EnqueueAround
    from rota.store.driver import Operation


ONE_S = LOCK_TIMEOUT_S + 2
"""Longest wait for the answer to one enqueue: a request waits for it. If it stands behind a lock,
the server says so before."""
ONE = Patience(ONE_S, "the job may have been inserted: look for it, or enqueue it again with a key")
MANY = Patience(
    None, "the jobs may have been inserted, all of them: look for them, or enqueue them with keys"
)


class EnqueueCalls(Caller):
    """The calls of an App that enqueue jobs. They implement the `Sender` of job types."""

    _payload_bytes_max: int | None = None
    _enqueue_arounds: Sequence[EnqueueAround] = ()
    """What is around each call that enqueues, the outermost first."""

    def enqueue(self, job: NewJob, /) -> Enqueued:
        """Insert a job made with `job_type.new(…)`. Raises as `JobType.enqueue`."""
        _check_job(job)
        if self._enqueue_arounds:
            with carry_meta(self._enqueue_arounds, [job]) as jobs:
                return self._run(self._enqueue(jobs[0]), job.options.connection, patience=ONE)
        return self._run(self._enqueue(job), job.options.connection, patience=ONE)

    async def aenqueue(self, job: NewJob, /) -> Enqueued:
        """Insert a job made with `job_type.new(…)`. Raises as `JobType.enqueue`."""
        _check_job(job)
        if self._enqueue_arounds:
            with carry_meta(self._enqueue_arounds, [job]) as jobs:
                return await self._arun(
                    self._enqueue(jobs[0]), job.options.connection, patience=ONE
                )
        return await self._arun(self._enqueue(job), job.options.connection, patience=ONE)

    def enqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]:
        """Insert jobs of any types, all or none, with one INSERT per 1,000 or per
        million characters of payloads.

        Returns the results in the order of the input.

        Args:
            connection: whose transaction the INSERTs join. Defaults to that of the jobs, if they
                were made with one.

        Raises:
            PayloadError: a payload is over the limit; `index` says whose. Nothing was inserted.
            UsageError: the jobs name different connections.
            KeyTaken: another job has the key of one of these, whose `on_duplicate` is "raise".
                Nothing was inserted.
            DatabaseUnavailable: the database does not answer.
        """
        listed = _list_jobs(jobs)
        given = _find_connection(listed, connection)
        with carry_meta(self._enqueue_arounds if listed else (), listed) as carried:
            return self._run(self._enqueue_many(carried), given, atomic=True, patience=MANY)

    async def aenqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: Any = None
    ) -> list[Enqueued]:
        """Insert jobs of any types, as `enqueue_many`."""
        listed = _list_jobs(jobs)
        given = _find_connection(listed, connection)
        with carry_meta(self._enqueue_arounds if listed else (), listed) as carried:
            return await self._arun(self._enqueue_many(carried), given, atomic=True, patience=MANY)

    def _enqueue(self, job: NewJob) -> Operation[Enqueued]:
        row = _make_row(job)
        yield from self._refuse_large([job], indexed=False)
        try:
            inserted = yield from ops.insert(row)
        except PayloadRefused as error:
            raise self._explain_refusal([job], error, indexed=False) from None
        return _answer(inserted)

    def _enqueue_many(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        rows = [_make_row(job) for job in jobs]
        yield from self._refuse_large(jobs, indexed=True)
        try:
            inserted = yield from ops.insert_many(rows)
        except PayloadRefused as error:
            raise self._explain_refusal(jobs, error, indexed=True) from None
        return [_answer(one) for one in inserted]

    def _refuse_large(self, jobs: Sequence[NewJob], *, indexed: bool) -> Operation[None]:
        """Refuse what the database would refuse, before it aborts the transaction."""
        for index, job in enumerate(jobs):
            if job.options.meta_json is None and fits(job.payload_json, PAYLOAD_BYTES_LEAST):
                continue
            for argument, text in ((None, job.payload_json), ("meta", job.options.meta_json or "")):
                if fits(text, PAYLOAD_BYTES_LEAST):
                    continue
                if self._payload_bytes_max is None:
                    self._payload_bytes_max = yield from ops.payload_bytes_max()
                size = text_bytes(text)
                if size > self._payload_bytes_max:
                    # The limit may have been raised since it was read.
                    self._payload_bytes_max = yield from ops.payload_bytes_max()
                if size > self._payload_bytes_max:
                    raise self._explain_size(job, argument, size, index if indexed else None)

    def _explain_size(
        self, job: NewJob, argument: str | None, size: int, index: int | None
    ) -> PayloadError:
        assert self._payload_bytes_max is not None
        text = _explain_too_large(size, self._payload_bytes_max)
        return PayloadError(job.job_type.name, argument, text, index)

    def _explain_refusal(
        self, jobs: Sequence[NewJob], error: PayloadRefused, *, indexed: bool
    ) -> PayloadError:
        """Return the error for a payload that the database refused: the limit was lowered after it
        was read. It names the largest job. The caller's transaction is aborted."""
        self._payload_bytes_max = None
        index = max(range(len(jobs)), key=lambda at: text_bytes(jobs[at].payload_json))
        return PayloadError(
            jobs[index].job_type.name, None, error.reason, index if indexed else None
        )


def _list_jobs(jobs: Iterable[NewJob]) -> list[NewJob]:
    listed = list(jobs)
    for index, job in enumerate(listed):
        _check_job(job, f"job {index} of the list")
    return listed


def _check_job(job: object, what: str = "the job") -> None:
    if not isinstance(job, NewJob):
        raise UsageError(f"{what} is {job!r}; make it with job_type.new(…)")


def _find_connection(jobs: Sequence[NewJob], given: Any) -> Any:
    """Return the connection of an `enqueue_many`: the argument, or that of its jobs."""
    found = {
        id(job.options.connection): job.options.connection
        for job in jobs
        if job.options.connection is not None
    }
    if given is not None:
        found[id(given)] = given
    if len(found) > 1:
        raise UsageError(
            "the jobs of one enqueue_many name different connections; "
            "they are inserted together, so name one"
        )
    return next(iter(found.values()), None)


def _answer(inserted: ops.Inserted) -> Enqueued:
    return Enqueued(inserted.id, inserted.created, inserted.status, inserted.change)


def _make_row(job: NewJob) -> NewRow:
    options, defaults = job.options, job.job_type.options
    key = options.idempotency_key or job.key
    on_duplicate = options.on_duplicate or defaults.on_duplicate
    check_duplicates(job.job_type.name, key, options, on_duplicate)
    return NewRow(
        queue=options.queue or defaults.queue,
        job_type=job.job_type.name,
        payload=job.payload_json,
        payload_version=defaults.version,
        priority=defaults.priority if options.priority is None else options.priority,
        run_at=options.run_at,
        delay_s=options.delay_s,
        expires_s=defaults.expires_s if options.expires_s is None else options.expires_s,
        max_attempts=options.max_attempts,
        timeout=options.timeout,
        idempotency_key=key,
        meta=options.meta_json,
        on_duplicate=on_duplicate,
    )


def check_duplicates(
    job_type: str, key: str | None, options: EnqueueOptions, on_duplicate: str
) -> None:
    """Raise UsageError if the job lacks what its `on_duplicate` needs."""
    if key is None:
        if options.on_duplicate is not None:
            raise UsageError(
                f"job type {job_type!r}: on_duplicate needs a key: give idempotency_key, "
                "or declare the type with key=…"
            )
    elif on_duplicate == "postpone" and options.run_at is None and options.delay_s is None:
        raise UsageError(
            f"job type {job_type!r}: on_duplicate='postpone' needs run_at or delay, "
            "which say until when"
        )


def refuse_too_large(job_type: str, payload: str, meta: str | None) -> Operation[None]:
    """Refuse what the database would refuse, before it aborts the transaction.

    For calls that are rare: unlike `EnqueueCalls` it reads the limit each time it needs it.

    Raises:
        PayloadError: the payload or the meta is over the limit.
    """
    for argument, text in ((None, payload), ("meta", meta or "")):
        if fits(text, PAYLOAD_BYTES_LEAST):
            continue
        size, most = text_bytes(text), (yield from ops.payload_bytes_max())
        if size > most:
            raise PayloadError(job_type, argument, _explain_too_large(size, most))


def _explain_too_large(size: int, most: int) -> str:
    return (
        f"{size:,} bytes is over the limit of {most:,}: "
        "store the data elsewhere and pass a reference, such as its id"
    )
