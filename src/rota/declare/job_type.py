"""A declared job type: a named handler with its policy and payload codec.

Nothing here knows the App or the database: enqueueing goes through the `Sender` that the App gives
its `Jobs`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from rota.declare.chunk import Chunk, ItemCodec
from rota.declare.connection import AnyConnection, AsyncConnection, Connection
from rota.declare.key import KeyMaker
from rota.declare.options import EnqueueOptions, JobTypeOptions, UsingOptions
from rota.declare.payload import Codec
from rota.declare.rate_limit import LimitReader
from rota.errors import DeclarationError, PayloadError, UsageError
from rota.model.job import Enqueued, Job
from rota.model.retry import PLAN_MAX
from rota.model.settle import RetryRules
from rota.model.units import format_interval

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
ByName = Literal["named", "pyformat"]
ByPlace = Literal["format", "qmark", "numeric", "numeric_dollar"]


class NewJob(msgspec.Struct, frozen=True):
    """A job that is not enqueued yet: its arguments are checked and encoded."""

    job_type: JobType[..., ..., Any]
    payload_json: str
    options: EnqueueOptions = EnqueueOptions()
    key: str | None = None
    """What the type's key function made of the arguments; a key of the options counts instead."""
    made_group: str | None = None
    """What its group_key function made of them, likewise."""

    @property
    def group_key(self) -> str | None:
        """Its lane; None: it has none."""
        return self.options.group_key or self.made_group

    @property
    def lane_capacity(self) -> int | None:
        """How many jobs of its lane may run at once when it begins; None: it has no lane."""
        if self.group_key is None:
            return None
        return self.options.lane_capacity or self.job_type.options.lane_capacity

    def using(
        self, connection: AnyConnection | None = None, /, **options: Unpack[UsingOptions]
    ) -> NewJob:
        """Return the same job with other options: those of `JobType.using`."""
        updated = self.job_type._update_options(self.options, options, connection)
        return NewJob(self.job_type, self.payload_json, updated, self.key, self.made_group)

    @overload
    def statement(self, paramstyle: ByName = ...) -> tuple[str, dict[str, str | None]]: ...

    @overload
    def statement(self, paramstyle: ByPlace) -> tuple[str, tuple[str | None, ...]]: ...

    def statement(self, paramstyle: str = "named") -> tuple[str, Any]:
        """Return the SQL that inserts this job, and its parameters: for a client that Rota does
        not know. Its row is that of an enqueue: `id, created, status, change`.

        Args:
            paramstyle: how the client marks parameters: `named` (`:name`), `pyformat`
                (`%(name)s`), `format` (`%s`), `qmark` (`?`), `numeric` (`:1`) or `numeric_dollar`
                (`$1`). With the first two the parameters are a mapping, otherwise a tuple.
                Defaults to "named".

        Raises:
            UsageError: there is no such style, or the job type belongs to no App yet.
        """
        return self.job_type.registry.sender.make_statement(self, paramstyle)


class Sender(Protocol):
    """Inserts jobs into the database: the App's client."""

    def enqueue(self, job: NewJob, /) -> Enqueued: ...
    def enqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: Connection | None = None
    ) -> list[Enqueued]: ...
    async def aenqueue(self, job: NewJob, /) -> Enqueued: ...
    async def aenqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: AsyncConnection | None = None
    ) -> list[Enqueued]: ...
    def make_statement(self, job: NewJob, paramstyle: str) -> tuple[str, Any]: ...


class SenderOfJobs(Protocol):
    """Knows the Sender: the `Jobs` in which a type was declared."""

    @property
    def sender(self) -> Sender: ...


_CALLED_HERE = {
    **dict.fromkeys(("delay", "defer", "send"), ".enqueue(…)"),
    **dict.fromkeys(
        ("apply_async", "send_with_options", "configure", "options"),
        '.using(delay="1m", priority=5).enqueue(…)',
    ),
    **dict.fromkeys(("s", "si", "message"), ".new(…), a job for app.enqueue_many and app.batch"),
}
"""What Celery, Procrastinate and Dramatiq call what a job type does."""


class JobType(Generic[P, Q, R]):
    """A declared job type, which is still its function: it can be called, and has its name,
    signature and docstring.

    `P` are the arguments of an enqueue, `Q` those of the function as written, `R` is what the
    function returns.
    """

    func: Callable[Q, R]
    """The function as written."""
    __name__: str
    __qualname__: str

    def __init__(
        self,
        registry: SenderOfJobs,
        name: str,
        func: Callable[Q, R],
        takes_context: bool,
        options: JobTypeOptions,
        chunk: Chunk | None = None,
    ) -> None:
        self._wrap(func)  # first: what follows counts
        self.registry = registry
        self.name = name
        self.func = func
        self.takes_context = takes_context
        self.options = options
        self.chunk = chunk
        """How many jobs one call takes; None: one, whose arguments are the call's."""
        # Also under a plain decorator: what that returns is awaited.
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(func))
        if (
            inspect.isgeneratorfunction(func)
            or inspect.isasyncgenfunction(func)
            or not inspect.isroutine(func)
        ):
            raise DeclarationError(
                f"job type {name!r}: the handler must be a plain or an async function, not {func!r}"
            )
        if self.is_async:
            _mark_async(self)
        self.item_codec: ItemCodec | None = None
        """The codec of a type that takes many jobs in one call; None: of any other."""
        if chunk is not None:
            self.item_codec = ItemCodec.of(func, job_type=name, takes_context=takes_context)
        self.codec = self.item_codec or Codec.of(func, job_type=name, takes_context=takes_context)
        self._key_maker = self._make_maker("key", options.key)
        self._group_maker = self._make_maker("group_key", options.group_key)
        breaker = options.breaker
        self.breaker = None if breaker is None else breaker.make_rules(name)
        """When its breaker opens; None: it has none."""
        self.breaker_key = self._make_maker("breaker key", None if breaker is None else breaker.key)
        """What makes the key of its breaker; None: it has no keys."""
        self.rules = RetryRules(
            options.max_attempts,
            options.retry,
            options.retry_on,
            options.fatal_on,
            options.on_lost == "dead",
            options.on_expired == "drop",
        )
        limit = options.rate_limit
        self.limit = (
            None
            if limit is None
            else LimitReader(
                limit,
                job_type=name,
                names=self.codec.parameters,
                defaults=self.codec.defaults,
            )
        )
        """What reads the key and the cost of a job from its arguments; None: it has no limit."""
        self.has_gates = breaker is not None or limit is not None
        """Whether its jobs pass gates that ask the database before they begin."""
        self.enqueue_options = EnqueueOptions()
        self._declared = self
        """The one that was declared; another one if `using` made this."""

    def _make_maker(self, option: str, func: Callable[..., Any] | None) -> KeyMaker | None:
        if func is None:
            return None
        return KeyMaker(
            func,
            option=option,
            job_type=self.name,
            names=self.codec.parameters,
            defaults=self.codec.defaults,
        )

    def _wrap(self, func: Callable[Q, R]) -> None:
        """Take the names, the docstring and the attributes of a function, as `functools.wraps`
        does, but for attributes that would hide a method of this class."""
        given = getattr(func, "__dict__", {})
        self.__dict__.update(
            {name: value for name, value in given.items() if not hasattr(JobType, name)}
        )
        functools.update_wrapper(self, func, updated=())

    def __call__(self, /, *args: Q.args, **kwargs: Q.kwargs) -> R:
        """Run the function here and now, as if it were not decorated."""
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name!r}>"

    if not TYPE_CHECKING:  # a checker shall find what is misspelt

        def __getattr__(self, name: str) -> Any:
            """Say what other libraries' names for a method are called here."""
            hint = _CALLED_HERE.get(name)
            meant = f"; in Rota: {hint}" if hint else ""
            raise AttributeError(f"a job type has no attribute {name!r}{meant}", name=name)

    def __reduce__(self) -> Any:
        """Pickle by name, as a function: another process imports the module that declares it."""
        if self is self._declared:
            return self.__qualname__
        return _copy, (self._declared, self.enqueue_options)

    @property
    def place(self) -> str:
        """Where the handler is written, as file:line."""
        code = getattr(inspect.unwrap(self.func), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.func)

    def using(
        self, connection: AnyConnection | None = None, /, **options: Unpack[UsingOptions]
    ) -> JobType[P, Q, R]:
        """Return the same job type with options for the jobs enqueued through it.

        Args:
            connection: the option of this name, by position: `mail.using(session).enqueue(…)`.
            options: those of `UsingOptions`, each documented there.

        Raises:
            UsageError: an option is unknown or out of range.
        """
        updated = self._update_options(self.enqueue_options, options, connection)
        return _copy(self, updated)

    def _update_options(
        self, before: EnqueueOptions, options: UsingOptions, connection: AnyConnection | None
    ) -> EnqueueOptions:
        """Return the options of a job of this type, with others on top. Raises UsageError."""
        updated = before.update(options, connection)
        if self.chunk is not None:
            self._check_timeout(updated)
        return updated

    def _check_timeout(self, options: EnqueueOptions) -> None:
        if options.timeout is not None:
            raise UsageError(
                f"job type {self.name!r}: a job has no timeout of its own, because one call takes "
                "many; give timeout to the job type"
            )

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a job with these arguments, for `enqueue_many`. Raises PayloadError if they do not
        fit."""
        return self.make(args, kwargs, self.enqueue_options)

    def make(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: EnqueueOptions,
        index: int | None = None,
    ) -> NewJob:
        """Return a job with these arguments and checked options; `index` is its place in a list.

        Raises:
            PayloadError: the arguments do not fit.
            UsageError: the key or the group_key function failed; a job of a type that takes many in
                one call has a timeout of its own.
        """
        if self.chunk is not None:
            self._check_timeout(options)
        payload = self.codec.encode(args, kwargs, index)
        key_maker = self._key_maker if options.idempotency_key is None else None
        group_maker = self._group_maker if options.group_key is None else None
        if key_maker is None and group_maker is None:
            return NewJob(self, payload, options)
        # From the payload, so that the functions get what the handler will get.
        arguments, _ = self.codec.decode(payload)
        key = None if key_maker is None else key_maker.make(arguments, index)
        group = None if group_maker is None else group_maker.make(arguments, index)
        return NewJob(self, payload, options, key, group)

    @property
    def key_arguments(self) -> tuple[str, ...] | None:
        """The arguments of which the key is made; None: the type declares no key."""
        return None if self._key_maker is None else self._key_maker.arguments

    @property
    def group_arguments(self) -> tuple[str, ...] | None:
        """The arguments of which the group key is made; None: the type declares no function."""
        return None if self._group_maker is None else self._group_maker.arguments

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Insert a job with these arguments.

        Raises:
            PayloadError: the arguments do not fit. Nothing was inserted, and the caller's
                transaction can continue.
            UsageError: the type's key or group_key function failed, or returned no key. Likewise.
            KeyTaken: another job has the key, and `on_duplicate` is "raise". Likewise.
            DatabaseUnavailable: the database does not answer.
        """
        return self.registry.sender.enqueue(self.new(*args, **kwargs))

    def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Enqueued]:
        """Insert a job with these arguments; `await` it. The arguments are checked at the call."""
        return self._name_coroutine(
            "aenqueue", self.registry.sender.aenqueue(self.new(*args, **kwargs))
        )

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Insert a job for each mapping of arguments, all or none. Results are in the order of the
        input."""
        return self.registry.sender.enqueue_many(self._make_many(arguments))

    def aenqueue_many(
        self, arguments: Iterable[Mapping[str, Any]]
    ) -> Coroutine[Any, Any, list[Enqueued]]:
        """Insert a job for each mapping of arguments, all or none; `await` it."""
        return self._name_coroutine(
            "aenqueue_many", self.registry.sender.aenqueue_many(self._make_many(arguments))
        )

    def _make_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[NewJob]:
        if isinstance(arguments, Mapping):
            raise UsageError(
                f"job type {self.name!r}: enqueue_many takes a list of mappings, not one mapping"
            )
        return [
            self.make((), self._check_mapping(given, index), self.enqueue_options, index)
            for index, given in enumerate(arguments)
        ]

    def _check_mapping(self, given: object, index: int) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise UsageError(
                f"job type {self.name!r}: job {index} of the list is {given!r}; "
                "enqueue_many takes a list of mappings"
            )
        return dict(given)

    def _name_coroutine(
        self, verb: str, coroutine: Coroutine[Any, Any, Any]
    ) -> Coroutine[Any, Any, Any]:
        # Python prints this name in its warning about a coroutine that was never awaited.
        coroutine.__qualname__ = f"{verb} of job type {self.name!r}"  # type: ignore[attr-defined]
        return coroutine

    def arguments(self, job: Job) -> tuple[dict[str, Any], frozenset[str]]:
        """Decode a stored payload; return the arguments and the names of ignored unknown fields.
        Raises PayloadError if it does not fit."""
        return self._read(job, self.codec.decode)

    def call_arguments(self, job: Job) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the arguments of a call of the handler with this job alone, and the names of
        ignored unknown fields. Raises as `arguments`."""
        if self.item_codec is None:
            return self.arguments(job)
        item, unknown = self.read_item(job)
        return {self.item_codec.parameter: [item]}, unknown

    def read_many(self, jobs: list[Job]) -> list[dict[str, Any]] | None:
        """Do what `call_arguments` does for many jobs, at once. None: one of them needs a look of
        its own."""
        current = self.options.version
        if self.item_codec is not None or [1 for job in jobs if job.payload_version != current]:
            return None
        return self.codec.decode_many([job.payload_json for job in jobs])

    def read_item(self, job: Job) -> tuple[Any, frozenset[str]]:
        """Of a type that takes many jobs in one call: decode a stored payload; return the item of
        the handler's list, and the names of ignored unknown fields. Raises as `arguments`."""
        assert self.item_codec is not None
        return self._read(job, self.item_codec.read_item)

    def read_items(self, jobs: list[Job]) -> tuple[list[Any], frozenset[str]] | None:
        """Do what `read_item` does for many jobs, at once. None: one of them needs a look of its
        own."""
        assert self.item_codec is not None
        current = self.options.version
        if [1 for job in jobs if job.payload_version != current]:
            return None
        return self.item_codec.read_items([job.payload_json for job in jobs])

    def _read(self, job: Job, decode: Callable[[str], T]) -> T:
        """Decode a stored payload, of whatever version."""
        stored, current = job.payload_version, self.options.version or 1
        if stored == current:
            return decode(job.payload_json)
        if stored is None:
            if not self.options.upgrade:
                return decode(job.payload_json)
            try:
                return decode(job.payload_json)
            except PayloadError:
                stored = 1
        if stored > current:
            why = f"stored as version {stored}, this release knows up to version {current}"
            raise PayloadError(self.name, None, why)
        payload = job.payload
        for version in range(stored, current):
            payload = self.options.upgrade[version](payload)
        return decode(self.codec.write(payload))


def _copy(declared: JobType[P, Q, R], enqueue_options: EnqueueOptions) -> JobType[P, Q, R]:
    other = object.__new__(type(declared))
    other.__dict__.update(declared.__dict__, enqueue_options=enqueue_options)
    return other


def _mark_async(job_type: JobType[..., ..., Any]) -> None:
    """Let `iscoroutinefunction` see that a call must be awaited: frameworks run what it does not
    see in a thread, where nobody awaits it."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(job_type)
    else:  # only asyncio's looks for a mark
        job_type._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]


def make_row(job_type: JobType[..., ..., Any], lease_s: float) -> dict[str, Any]:
    """Return the columns of the row of a job type."""
    options = job_type.options
    return {
        **options.columns(),
        "name": job_type.name,
        "aliases": options.aliases,
        "lease": format_interval(options.lease_s or lease_s),
        "key_arguments": job_type.key_arguments,
        "group_arguments": job_type.group_arguments,
        "breaker": None if job_type.breaker is None else job_type.breaker.name,
        "breaker_has_keys": None if job_type.breaker is None else job_type.breaker_key is not None,
        "retry_after": [format_interval(wait_s) for wait_s in options.retry.plan_s(PLAN_MAX)],
    }
