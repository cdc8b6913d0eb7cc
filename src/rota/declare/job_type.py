"""A declared job type as applications see it: its function, and how its jobs are enqueued.

Knows no App and no database: `Jobs` has the `Sender` of its App.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
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
from msgspec import UNSET, UnsetType

from rota.declare.chunk import Chunk
from rota.declare.connection import AnyConnection, AsyncConnection, Connection
from rota.declare.declaration import Declaration
from rota.declare.named_options import name_options
from rota.declare.options import EnqueueOptions, JobTypeOptions, UsingOptions, advise_using
from rota.declare.result_of import ResultOf
from rota.errors import PayloadError, UsageError, refuse_attribute
from rota.model.job import Enqueued

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
if TYPE_CHECKING:  # Python has defaults of type variables from 3.13 on
    from typing_extensions import TypeVar as _TypeVar

    R_co = _TypeVar("R_co", covariant=True, default=Any)
else:
    R_co = TypeVar("R_co", covariant=True)
ByName = Literal["named", "pyformat"]
ByPlace = Literal["format", "qmark", "numeric", "numeric_dollar"]


_ENQUEUED_BY = "app.enqueue(new_job), or job_type.enqueue(…) without new"


class NewJob(msgspec.Struct, Generic[R_co], frozen=True):
    """A job that is not enqueued yet: its arguments are checked and encoded. `R_co` is what its
    handler returns."""

    job_type: JobType[..., ..., Any]
    """The job type as it was declared."""
    payload_json: str
    """The arguments of the handler, as JSON text."""
    options: EnqueueOptions = EnqueueOptions()
    """The options of this enqueue; None: the type's."""
    key: str | None = None
    """The key from the type's key function; a key of the options counts instead."""
    made_group: str | None = None
    """The group key from the type's function; a group key of the options counts instead."""
    asks_json: str | None = None
    """What the job asks of its limit and its breaker, as JSON text."""
    takes: Mapping[str, ResultOf] | None = None
    """The fields of the payload that get results of the jobs before it; None: no fields."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say who enqueues it."""
            refuse_attribute("a new job", name, dict.fromkeys(("enqueue", "delay"), _ENQUEUED_BY))

    def __repr__(self) -> str:  # nothing of the payload
        return f"<new job of type {self.job_type.name!r}>"

    @property
    def group_key(self) -> str | None:
        """The ordered group; None: it has none."""
        return self.options.group_key or self.made_group

    @property
    def group_capacity(self) -> int | None:
        """How many jobs of the group may run at once; None: the job has no group."""
        if self.group_key is None:
            return None
        return self.options.group_capacity or self.job_type._declaration.options.group_capacity

    @name_options
    def using(
        self, connection: AnyConnection | UnsetType = UNSET, /, **options: Unpack[UsingOptions]
    ) -> NewJob[R_co]:
        """Return the same job with other options: the keys of `JobType.using`."""
        updated = self.job_type._update_options(self.options, options, connection)
        return NewJob(
            self.job_type,
            self.payload_json,
            updated,
            self.key,
            self.made_group,
            self.asks_json,
            self.takes,
        )

    @overload
    def statement(self, paramstyle: ByName = ...) -> tuple[str, dict[str, str | None]]: ...

    @overload
    def statement(self, paramstyle: ByPlace) -> tuple[str, tuple[str | None, ...]]: ...

    def statement(self, paramstyle: str = "named") -> tuple[str, Any]:
        """Return the SQL that inserts this job, and its parameters, for a client that Rota does not
        know. Its row is `id, created, status, change`, as of an enqueue.

        Args:
            paramstyle: how the client marks parameters. With `named` (`:name`) and `pyformat`
                (`%(name)s`) the parameters are a mapping; with `format` (`%s`), `qmark` (`?`),
                `numeric` (`:1`) and `numeric_dollar` (`$1`) a tuple. Defaults to "named".

        Raises:
            UsageError: there is no such style, or the job type belongs to no App yet.
        """
        return self.job_type._sender._make_statement(self, paramstyle)


class Sender(Protocol):
    """Inserts jobs into the database: the App's client."""

    def enqueue(self, job: NewJob, /) -> Enqueued: ...
    def enqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: Connection | UnsetType = UNSET
    ) -> list[Enqueued]: ...
    async def aenqueue(self, job: NewJob, /) -> Enqueued: ...
    async def aenqueue_many(
        self, jobs: Iterable[NewJob], /, *, connection: AsyncConnection | UnsetType = UNSET
    ) -> list[Enqueued]: ...
    def _make_statement(self, job: NewJob, paramstyle: str) -> tuple[str, Any]: ...

    @property
    def _call(self) -> Any:
        """Calls a function of a package: its file, arguments and `connection`."""

    @property
    def _acall(self) -> Any:
        """As `_call`, to be awaited."""

    def _carry(
        self, job: NewJob | None, connection: object, /
    ) -> AbstractContextManager[dict[str, Any]]: ...


class SenderOfJobs(Protocol):
    """The `Jobs` of a type, which knows the Sender."""

    @property
    def _sender(self) -> Sender: ...


_CALLED_HERE = {
    **dict.fromkeys(("delay", "defer", "send", "kiq", "schedule"), ".enqueue(…)"),
    **dict.fromkeys(
        ("apply_async", "send_with_options", "configure", "options", "kicker"),
        '.using(delay="1m", priority=5).enqueue(…)',
    ),
    **dict.fromkeys(("run", "fn", "original_func"), "call the job type itself: send(user_id=1)"),
    **dict.fromkeys(("map", "starmap", "chunks"), "app.enqueue_many([job_type.new(…), …])"),
    **dict.fromkeys(("s", "si", "message"), ".new(…), a job for app.enqueue_many and app.batch"),
}
"""A job type's methods, by their names in other libraries."""


class JobType(Generic[P, Q, R]):
    """A declared job type. It is still its function: it can be called, and has its name, signature
    and docstring.

    `P` are the arguments of an enqueue, `Q` the arguments of the function, `R` is its result.
    """

    func: Callable[Q, R]
    """The function as written."""
    __name__: str
    __qualname__: str

    def __init__(
        self,
        jobs: SenderOfJobs,
        name: str,
        func: Callable[Q, R],
        takes_context: bool,
        options: JobTypeOptions,
        chunk: Chunk | None = None,
    ) -> None:
        functools.update_wrapper(self, func, updated=())  # first: what follows counts
        # Another library's decorator may have set an `enqueue` of its own.
        given = getattr(func, "__dict__", {})
        self.__dict__ |= {n: v for n, v in given.items() if not hasattr(JobType, n)}
        self.name = name
        """Name of the job type, as it is stored."""
        self.func = func
        self._declaration = Declaration(jobs, name, func, takes_context, options, chunk)
        if self._declaration.is_async:
            _mark_async(self)
        self._options = EnqueueOptions()
        self._declared = self
        """The declared job type; `using` makes others."""

    @property
    def app(self) -> Any:
        """The App of the job type, as `ctx.app` in a handler. Raises UsageError without an App."""
        return self._sender

    @property
    def _sender(self) -> Sender:
        return self._declaration.jobs._sender

    def __call__(self, /, *args: Q.args, **kwargs: Q.kwargs) -> R:
        """Run the function here and now, as if it were not decorated."""
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name!r}>"

    if not TYPE_CHECKING:  # a checker shall find what is misspelt

        def __getattr__(self, name: str) -> Any:
            """Explain the names of other libraries."""
            refuse_attribute("a job type", name, _CALLED_HERE)

    def __reduce__(self) -> Any:
        """Pickle by name, as a function: another process imports the module that declares it."""
        if self is self._declared:
            return self.__qualname__
        return _copy, (self._declared, self._options)

    @name_options
    def using(
        self, connection: AnyConnection | UnsetType = UNSET, /, **options: Unpack[UsingOptions]
    ) -> JobType[P, Q, R]:
        """Return the same job type with options for the jobs enqueued through it.

        Args:
            connection: the option `connection`, by position: `mail.using(session).enqueue(…)`.
            options: the keys of `UsingOptions`, each documented there.

        Raises:
            UsageError: an option is unknown or out of range.
        """
        updated = self._update_options(self._options, options, connection)
        return _copy(self, updated)

    def _update_options(
        self, before: EnqueueOptions, options: UsingOptions, connection: AnyConnection | UnsetType
    ) -> EnqueueOptions:
        """Return the earlier options with other options on top. Raises UsageError."""
        updated = before.update(options, connection)
        if self._declaration.chunk is not None:
            self._declaration.check_timeout(updated)
        return updated

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """Return a job with these arguments, for `enqueue_many`. An argument may be the result of
        the job before it: `rota.result_of(job)`. Raises PayloadError."""
        return self._make(args, kwargs, self._options)

    def _make(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: EnqueueOptions,
        index: int | None = None,
    ) -> NewJob[R]:
        """Return a job with these arguments and checked options; `index` is its place in a list.
        Raises PayloadError, and UsageError as a key function or `check_timeout`."""
        declaration, takes = self._declaration, None
        codec = declaration.codec
        if declaration.chunk is not None:
            declaration.check_timeout(options)
        try:
            payload = codec.encode(args, kwargs, index)
        except PayloadError as error:
            if not any(isinstance(given, ResultOf) for given in (*args, *kwargs.values())):
                if error.argument in kwargs and error.argument not in codec.names:
                    error.args = (f"{error}{advise_using(error.argument)}",)
                raise
            known, takes, codec = codec.set_apart(args, kwargs, index)
            payload = codec.encode((), known, index)
        key_maker = declaration.key_maker if options.idempotency_key is None else None
        group_maker = declaration.group_maker if options.group_key is None else None
        if key_maker is None and group_maker is None and not declaration.asks.makers:
            return NewJob(self, payload, options, takes=takes)
        if takes is not None:
            unknown = codec.name_parameters(takes)
            for maker in filter(None, (key_maker, group_maker, *declaration.asks.makers.values())):
                maker.refuse_unknown(unknown, index)
        # From the payload, so that the functions get the handler's arguments.
        arguments, _ = codec.decode(payload)
        key = None if key_maker is None else key_maker.make(arguments, index)
        group = None if group_maker is None else group_maker.make(arguments, index)
        asks = declaration.asks.make(arguments, index) if declaration.asks.makers else None
        return NewJob(self, payload, options, key, group, asks, takes)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Insert a job with these arguments. After an error nothing is inserted, and the caller's
        transaction can continue, unless the database does not answer.

        Raises:
            PayloadError: the arguments do not fit.
            UsageError: a function of the type that makes a key failed, or made no key.
            KeyTaken: another job has the key, and `on_duplicate` is "raise".
            DatabaseUnavailable: the database does not answer.
        """
        return self._declaration.jobs._sender.enqueue(self.new(*args, **kwargs))

    def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Enqueued]:
        """Insert a job with these arguments; `await` it. The arguments are checked at the call."""
        return self._name_coroutine(
            "aenqueue", self._declaration.jobs._sender.aenqueue(self.new(*args, **kwargs))
        )

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Insert a job for each mapping of arguments, all or none; return them in that order."""
        return self._declaration.jobs._sender.enqueue_many(self._make_many(arguments))

    def aenqueue_many(
        self, arguments: Iterable[Mapping[str, Any]]
    ) -> Coroutine[Any, Any, list[Enqueued]]:
        """Insert a job for each mapping of arguments, all or none; `await` it."""
        return self._name_coroutine(
            "aenqueue_many",
            self._declaration.jobs._sender.aenqueue_many(self._make_many(arguments)),
        )

    def _make_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[NewJob]:
        if isinstance(arguments, Mapping):
            raise UsageError(
                f"job type {self.name!r}: enqueue_many takes a list of mappings, not one mapping"
            )
        return [
            self._make((), self._check_mapping(given, index), self._options, index)
            for index, given in enumerate(arguments)
        ]

    def _check_mapping(self, given: object, index: int) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            shown = type(given) if self._declaration.codec.hides else given
            raise UsageError(
                f"job type {self.name!r}: job {index} of the list is {shown!r}; "
                "enqueue_many takes a list of mappings"
            )
        return dict(given)

    def _name_coroutine(
        self, verb: str, coroutine: Coroutine[Any, Any, Any]
    ) -> Coroutine[Any, Any, Any]:
        # Python prints this name when nobody awaits the coroutine.
        coroutine.__qualname__ = f"{verb} of job type {self.name!r}"  # type: ignore[attr-defined]
        return coroutine


def _copy(declared: JobType[P, Q, R], options: EnqueueOptions) -> JobType[P, Q, R]:
    other = object.__new__(type(declared))
    other.__dict__.update(declared.__dict__, _options=options)
    return other


def _mark_async(job_type: JobType[..., ..., Any]) -> None:
    """Let `iscoroutinefunction` of frameworks see that a call must be awaited."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(job_type)
    else:  # only asyncio's looks for a mark
        job_type._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
