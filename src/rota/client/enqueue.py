"""Enqueueing jobs, one or many."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from rota.client.base import Caller
from rota.client.carry import carry_meta, gather_meta
from rota.client.statement import make_statement
from rota.declare.around import EnqueueAround
from rota.declare.connection import (
    AnyConnection,
    AsyncConnection,
    Connection,
    read_connection,
)
from rota.declare.job_type import NewJob
from rota.declare.jsonb import PAYLOAD_BYTES_LEAST, all_fit, fits, text_bytes
from rota.declare.options import OWN, EnqueueOptions, UsingOptions, encode_asks
from rota.declare.payload import encode_untyped
from rota.declare.taking import refuse_taking
from rota.errors import PayloadError, UsageError
from rota.model.bounds import NAME_MAX, check_text
from rota.model.job import Enqueued
from rota.store import ops
from rota.store.db import LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S, Patience, RunOptions
from rota.store.driver import Operation
from rota.store.errors import PayloadRefused
from rota.store.ops import CommonColumns, NewRow

ONE_S = LOCK_TIMEOUT_S + 2
"""Longest wait in seconds for the answer to one enqueue. A lock timeout ends earlier."""
ONE = Patience(ONE_S, "the job may have been inserted: look for it, or enqueue it again with a key")
MANY = Patience(
    ops.IN_FLIGHT * STATEMENT_TIMEOUT_S + 5.0,  # the answers to so many INSERTs come as one
    "the jobs may have been inserted, all of them: look for them, or enqueue them with keys",
)
OF_ONE: RunOptions = {"patience": ONE}
OF_MANY: RunOptions = {"patience": MANY, "atomic": True}

T = TypeVar("T")
Insertion = tuple[Operation[T], Any, RunOptions]
"""The operation of a call that enqueues, its connection and the options of its run."""
Prepared = AbstractContextManager[Insertion[T]]
Following = NewJob | Sequence[NewJob]
"""The job that follows others, or a chain: jobs of which each follows the one before it."""
Then = Following | Mapping[str, Following]
"""What follows others, or what follows them for each outcome: `succeeded`, `failed`."""


class EnqueueCalls(Caller):
    """The calls of an App that enqueue jobs: the `Sender` of job types."""

    schema: str
    """The schema of Rota's tables."""
    _require_connection = False
    """Whether every enqueue needs a connection of the caller's."""
    _enforces_transactional = True
    """Whether job types with `transactional` need a transaction."""
    _payload_bytes_max: int | None = None
    _enqueue_arounds: Sequence[EnqueueAround] = ()
    """The enqueue middleware, the outermost first."""

    @overload
    def enqueue(self, job: NewJob, /, *, then: Then | None = None) -> Enqueued: ...

    @overload
    def enqueue(
        self,
        job: str,
        arguments: Mapping[str, Any] | None = None,
        connection: Connection | UnsetType = UNSET,
        /,
        **options: Unpack[UsingOptions],
    ) -> Enqueued: ...

    def enqueue(
        self,
        job: NewJob | str,
        arguments: Any = None,
        connection: Any = UNSET,
        /,
        *,
        then: Then | None = None,
        **options: Any,
    ) -> Enqueued:
        """Insert a job made with `job_type.new(…)`, or a job of a type that this program may lack,
        by the type's name: `app.enqueue("send_mail", {"user_id": 42}, priority=5)`.

        By name: if the App has the type, the arguments are checked as by its `enqueue`. Otherwise
        the arguments are stored unchecked, with the type's options in the database. A name that the
        database does not know is no error, because a producer may be deployed before its worker: an
        alert and `rota doctor` report jobs that no worker knows. A name that is almost that of a
        type of the App is a RuntimeWarning.

        Args:
            job: the job, or the name of its type.
            arguments: the handler's arguments by name, JSON; only with a name. Defaults to none.
            connection: the option `connection`, by position; only with a name.
            then: the job that is enqueued when this job has ended, however; or a mapping with a job
                for each outcome: `succeeded`, and `failed` (dead or cancelled). A list is a chain:
                each job is enqueued when the job before it has succeeded, and so is a job that
                takes its result, as in `then=double.new(rota.result_of(job))`. A job whose key was
                taken has no `then` of its own. Only with a job. Defaults to none.
            options: the keys of `UsingOptions`, each documented there; only with a name.

        Raises:
            PayloadError: the arguments have no JSON form, do not fit, or are too large.
            UsageError, KeyTaken, DatabaseUnavailable: as `JobType.enqueue`.
        """
        with self._prepare_one(job, arguments, connection, then, options) as insertion:
            operation, given, how = insertion
            return self._run(operation, given, **how)

    @overload
    async def aenqueue(self, job: NewJob, /, *, then: Then | None = None) -> Enqueued: ...

    @overload
    async def aenqueue(
        self,
        job: str,
        arguments: Mapping[str, Any] | None = None,
        connection: AsyncConnection | UnsetType = UNSET,
        /,
        **options: Unpack[UsingOptions],
    ) -> Enqueued: ...

    async def aenqueue(
        self,
        job: NewJob | str,
        arguments: Any = None,
        connection: Any = UNSET,
        /,
        *,
        then: Then | None = None,
        **options: Any,
    ) -> Enqueued:
        """Insert a job. Arguments and errors are as in `enqueue`."""
        with self._prepare_one(job, arguments, connection, then, options) as insertion:
            operation, given, how = insertion
            return await self._arun(operation, given, **how)

    def enqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: Connection | UnsetType = UNSET
    ) -> list[Enqueued]:
        """Insert jobs of any types, all or none, with one INSERT per 1,000 or per million
        characters of payloads. Return the results in the order of the input.

        Args:
            jobs: made with `job_type.new(…)`.
            connection: whose transaction the INSERTs join. Defaults to that of the jobs.

        Raises:
            PayloadError: a payload is over the limit; `index` says whose. Nothing was inserted.
            UsageError: the jobs name different connections.
            KeyTaken: another job has the key of a job whose `on_duplicate` is "raise". Nothing was
                inserted.
            DatabaseUnavailable: the database does not answer.
        """
        with self._prepare_many(jobs, connection) as (operation, given, how):
            return self._run(operation, given, **how)

    async def aenqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: AsyncConnection | UnsetType = UNSET
    ) -> list[Enqueued]:
        """Insert jobs of any types, as `enqueue_many`."""
        with self._prepare_many(jobs, connection) as (operation, given, how):
            return await self._arun(operation, given, **how)

    def _make_statement(self, job: NewJob, paramstyle: str) -> tuple[str, Any]:
        return make_statement(make_rows([job])[0], self.schema, paramstyle)

    def _prepare_one(
        self, job: Any, arguments: Any, connection: Any, then: Then | None, options: Any
    ) -> Prepared[Enqueued]:
        is_plain = isinstance(job, NewJob) and arguments is None and connection is UNSET
        if options or not is_plain:
            job = self._prepare_by_name(job, arguments, connection, then, options)
            if isinstance(job, UntypedJob):
                return self._prepare_untyped(job)
        if then is not None:
            return self._prepare_then(job, then)
        return self._prepare([job], job.options.connection, self._enqueue, OF_ONE)

    def _prepare_many(self, jobs: Iterable[NewJob], connection: Any) -> Prepared[list[Enqueued]]:
        listed = list_jobs(jobs)
        given = find_connection(listed, connection)
        return self._prepare(listed, given, self._enqueue_many, OF_MANY)

    @abstractmethod
    def _prepare_then(self, job: NewJob, then: Then) -> Prepared[Enqueued]:
        """Prepare the insertion of a job that another job follows."""

    def _prepare(
        self,
        jobs: Sequence[NewJob],
        connection: Any,
        insert: Callable[[Sequence[NewJob]], Operation[T]],
        how: RunOptions,
        following: Sequence[NewJob] = (),
    ) -> Prepared[T]:
        """Go around the insertion of jobs, and of jobs that follow them, with the middleware."""
        how = {**how, "joins": self._check_joins(jobs, connection)}
        all_jobs = [*jobs, *following]
        if self._enqueue_arounds and all_jobs:
            return self._go_around(all_jobs, connection, insert, how)
        return nullcontext((insert(all_jobs), connection, how))  # most Apps have no middleware

    @contextmanager
    def _go_around(
        self,
        jobs: Sequence[NewJob],
        connection: Any,
        insert: Callable[[Sequence[NewJob]], Operation[T]],
        how: RunOptions,
    ) -> Iterator[Insertion[T]]:
        with carry_meta(self._enqueue_arounds, jobs) as carried:
            yield insert(carried), connection, how

    @contextmanager
    def _prepare_untyped(self, job: UntypedJob) -> Iterator[Insertion[Enqueued]]:
        with gather_meta(self._enqueue_arounds, []) as meta:
            yield job.insert(meta), job.connection, OF_ONE

    def _prepare_by_name(
        self,
        name: NewJob | str,
        arguments: Mapping[str, Any] | None,
        connection: AnyConnection | UnsetType,
        then: Then | None,
        options: Any,
    ) -> NewJob | UntypedJob:
        if isinstance(name, NewJob):
            raise UsageError(
                "app.enqueue takes arguments and options with a job type's name only; a job has "
                "its own: job_type.using(priority=5).new(…)"
            )
        if not isinstance(name, str):
            check_job(name)
        checked = EnqueueOptions().update(options, connection)
        check_text(name, "the job type's name", NAME_MAX)
        if not isinstance(arguments, Mapping | None):
            raise UsageError(
                f"job type {name!r}: the arguments must be a mapping, not {arguments!r}"
            )
        if then is not None:
            raise UsageError(f"job type {name!r}: then goes with a job made with job_type.new(…)")
        given = dict(arguments or {})
        declared = self._type_of(name)
        if declared is not None:
            return declared._make((), given, checked)
        self._warn_of_misspelled(name)
        self._check_joins([], checked.connection)
        asks_json = encode_asks(options.get("meta"))
        return UntypedJob(name, encode_untyped(name, given), checked, asks_json)

    def _check_joins(self, jobs: Sequence[NewJob], connection: object) -> str | None:
        """Refuse jobs that need a transaction of the caller's and have no connection. Return why
        other jobs would be too early without a transaction; None: none is needed."""
        needing = [job for job in jobs if job.job_type._declaration.options.transactional]
        connection = self._joined if connection is None else connection
        if connection is None and self._require_connection:
            raise UsageError(
                "this App has require_connection=True, so that each job commits with your "
                "transaction: name the connection, as in mail.using(session).enqueue(…)"
            )
        if not needing or not self._enforces_transactional:
            return None
        if connection is None:
            raise UsageError(
                f"job type {needing[0].job_type.name!r} is transactional, so that its jobs commit "
                "with your transaction: name the connection, as in "
                "mail.using(session).enqueue(…)"
            )
        return "inserted"

    def _enqueue(self, jobs: Sequence[NewJob]) -> Operation[Enqueued]:
        [row] = make_rows(jobs)
        return self._watch_payloads(jobs, ops.insert(row), indexed=False)

    def _enqueue_many(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        return self._watch_payloads(jobs, ops.insert_many(make_rows(jobs)), indexed=True)

    def _watch_payloads(
        self, jobs: Sequence[NewJob], insert: Operation[T], *, indexed: bool
    ) -> Operation[T]:
        """Insert jobs. Raises PayloadError, with the place of a job if the jobs are a list."""
        yield from self._refuse_large(jobs, indexed=indexed)
        try:
            return (yield from insert)
        except PayloadRefused as error:
            raise self._explain_refusal(jobs, error, indexed=indexed) from None

    def _refuse_large(self, jobs: Sequence[NewJob], *, indexed: bool) -> Operation[None]:
        """Refuse payloads that the database would refuse, before it aborts the transaction."""
        texts = [job.payload_json for job in jobs]
        texts += {job.options.meta_json or "" for job in jobs}
        known = self._payload_bytes_max or PAYLOAD_BYTES_LEAST
        if all_fit(texts, known):
            return
        for index, job in enumerate(jobs):
            place = index if indexed else None
            for argument, text in ((None, job.payload_json), ("meta", job.options.meta_json or "")):
                if fits(text, known):
                    continue
                # The limit may have been raised since it was read.
                self._payload_bytes_max = known = yield from ops.payload_bytes_max()
                if (size := text_bytes(text)) > known:
                    why = _explain_too_large(size, known)
                    raise PayloadError(job.job_type.name, argument, why, place)

    def _explain_refusal(
        self, jobs: Sequence[NewJob], error: PayloadRefused, *, indexed: bool
    ) -> PayloadError:
        """Return the error for a payload over a limit that was lowered after it was read, with the
        largest job. The caller's transaction is aborted."""
        self._payload_bytes_max = None
        index = max(range(len(jobs)), key=lambda at: text_bytes(jobs[at].payload_json))
        return PayloadError(
            jobs[index].job_type.name, None, error.reason, index if indexed else None
        )


def list_jobs(jobs: Iterable[NewJob]) -> list[NewJob]:
    listed = list(jobs)
    if not {NewJob}.issuperset(map(type, listed)):
        for index, job in enumerate(listed):
            check_job(job, f"job {index} of the list")
    return listed


def check_job(job: object, what: str = "the job") -> None:
    if not isinstance(job, NewJob):
        raise UsageError(f"{what} is {job!r}; make it with job_type.new(…)")


def find_connection(jobs: Sequence[NewJob], given: Any) -> Any:
    """Return the connection of an `enqueue_many`: the argument, or the connection of its jobs."""
    named = [read_connection(given), *[job.options.connection for job in jobs]]
    # The same alias of Django's may be another string.
    found = {
        connection if isinstance(connection, str) else id(connection): connection
        for connection in named
        if connection is not None
    }
    if len(found) > 1:
        raise UsageError(
            "the jobs of one enqueue_many name different connections; "
            "they are inserted together, so name one"
        )
    return next(iter(found.values()), None)


def make_rows(jobs: Sequence[NewJob]) -> list[NewRow]:
    """Return the rows of jobs; common columns are made once. Raises UsageError."""
    known: dict[tuple[Any, ...], CommonColumns] = {}
    rows, before = [], None
    for job in jobs:
        job_type, options = job.job_type, job.options
        if job.takes is not None:
            refuse_taking(job)
        key = options.idempotency_key or job.key
        group_key = options.group_key or job.made_group
        same = (job_type, id(options), key is None, group_key is None)
        if same != before:
            before = same
            # `using` makes options, or a copy of the type, that may be equal.
            declared = job_type._declaration
            alike = (declared, key is None, group_key is None, *astuple(options)[:-OWN])
            common = known.get(alike) or known.setdefault(alike, _make_common(job, key))
        rows.append(NewRow(common, job.payload_json, key, group_key, job.asks_json))
    return rows


def _make_common(job: NewJob, key: str | None) -> CommonColumns:
    options, defaults = job.options, job.job_type._declaration.options
    on_duplicate = options.on_duplicate or defaults.on_duplicate
    check_duplicates(job.job_type.name, key, options, on_duplicate)
    return CommonColumns(
        queue=options.queue or defaults.queue,
        job_type=job.job_type.name,
        payload_version=defaults.version,
        priority=defaults.priority if options.priority is None else options.priority,
        run_at=options.run_at,
        delay_s=options.delay_s,
        expires_s=defaults.expires_s if options.expires_s is None else options.expires_s,
        max_attempts=options.max_attempts,
        timeout=options.timeout,
        group_capacity=job.group_capacity,
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
                f"job type {job_type!r}: on_duplicate needs a key: give key=…, "
                "or declare the type with unique=…"
            )
    elif on_duplicate == "postpone" and options.run_at is None and options.delay_s is None:
        raise UsageError(
            f"job type {job_type!r}: on_duplicate='postpone' needs run_at or delay, "
            "which say until when"
        )


class UntypedJob(msgspec.Struct, frozen=True):
    """A job whose type only the database may have."""

    job_type: str
    payload: str
    options: EnqueueOptions
    asks_json: str | None = None
    """What the job asks, by its meta."""

    @property
    def connection(self) -> Any:
        """The caller's connection; None: one of the App's."""
        return self.options.connection

    def insert(self, meta: Mapping[str, Any] | None = None) -> Operation[Enqueued]:
        """Insert the job, with `meta` beside its own. Raises PayloadError for a payload or a meta
        over the limit, and UsageError as `check_duplicates`."""
        name, options = self.job_type, self.options.add_meta(meta)
        yield from refuse_too_large(name, self.payload, options.meta_json)
        on_duplicate = options.on_duplicate
        if on_duplicate is None and options.idempotency_key is not None:
            on_duplicate = yield from ops.read_on_duplicate(name)
        on_duplicate = on_duplicate or "keep"
        check_duplicates(name, options.idempotency_key, options, on_duplicate)
        common = CommonColumns(
            queue=options.queue,
            job_type=name,
            payload_version=None,
            priority=options.priority,
            run_at=options.run_at,
            delay_s=options.delay_s,
            expires_s=options.expires_s,
            max_attempts=options.max_attempts,
            timeout=options.timeout,
            group_capacity=options.group_capacity,
            meta=options.meta_json,
            on_duplicate=on_duplicate,
        )
        key = options.idempotency_key
        row = NewRow(common, self.payload, key, options.group_key, self.asks_json)
        return (yield from ops.insert(row))


def refuse_too_large(job_type: str, payload: str, meta: str | None) -> Operation[None]:
    """Raise PayloadError for a payload or a meta over the limit, before the transaction aborts. For
    rare calls: it reads the limit each time."""
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
