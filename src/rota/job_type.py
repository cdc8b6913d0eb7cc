"""Declarations: a job type is a named handler with its policy and payload codec; a `Jobs` is a list of them that one App takes in.

Nothing here knows the App or the database: enqueueing goes through the `Sender` that the App gives its `Jobs`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

import msgspec

from rota.context import Context
from rota.duration import Duration, seconds
from rota.errors import DeclarationError, PayloadError, UsageError
from rota.job import Job, Rules
from rota.payload import Codec
from rota.policy import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY, RetryPolicy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

Errors = tuple[type[BaseException], ...]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

TIMEOUT_S = 300.0
KEY_TTL_S = 90 * 86400.0
LEASE_S_MIN = 1.0


class Enqueued(msgspec.Struct, frozen=True):
    """What an enqueue came to. With a key that was taken already, `created` is False and id and status are those of the first job."""

    id: int
    created: bool
    status: str


class Options(TypedDict, total=False):
    """What `using` takes. All are optional."""

    run_at: datetime | None
    delay: Duration | None
    priority: int | None
    queue: str | None
    max_attempts: int | None
    expires: Duration | None
    idempotency_key: str | None
    meta: Mapping[str, Any] | None
    connection: Any


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options of one job, checked."""

    run_at: datetime | None = None
    delay_s: float | None = None
    priority: int | None = None
    queue: str | None = None
    max_attempts: int | None = None
    expires_s: float | None = None
    idempotency_key: str | None = None
    meta_json: str | None = None
    connection: Any = None

    def updated(self, options: Options) -> Chosen:
        """These options with others on top; None means as before."""
        changes: dict[str, Any] = {}
        for name, value in options.items():
            if name not in _CHECKS:
                raise UsageError(f"using() takes no option {name!r}; it takes {', '.join(_CHECKS)}")
            if value is not None:
                column, check = _CHECKS[name]
                changes[column] = check(value, name)
        if "run_at" in changes and "delay_s" in changes:
            raise UsageError("give run_at or delay, not both")
        if "run_at" in changes:
            changes["delay_s"] = None
        elif "delay_s" in changes:
            changes["run_at"] = None
        return replace(self, **changes)


def _aware(value: Any, name: str) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise UsageError(
            f"{name} must be a datetime with a time zone, not {value!r}; the database's clock decides, so say which zone you mean"
        )
    return value


def _integer(value: Any, name: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\0" in value or not value.isprintable():
        raise UsageError(f"{name} must be 1 to {most} printable characters, not {value!r}")
    return value


def _meta(value: Any, name: str) -> str:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a mapping, not {value!r}")
    return META.encode((), {"meta": dict(value)})[len('{"meta":') : -1]


def _callers_meta(meta: dict[str, Any]) -> None: ...


META = Codec.of(_callers_meta, job_type="meta", takes_context=False)


def _priority(value: Any, name: str) -> int:
    return _integer(value, name, -100, 100)


def _max_attempts(value: Any, name: str) -> int:
    return _integer(value, name, 1, 10_000)


def _queue(value: Any, name: str) -> str:
    return _text(value, name, 100)


_CHECKS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "run_at": ("run_at", _aware),
    "delay": ("delay_s", lambda value, name: seconds(value, name=name)),
    "priority": ("priority", _priority),
    "queue": ("queue", _queue),
    "max_attempts": ("max_attempts", _max_attempts),
    "expires": ("expires_s", lambda value, name: seconds(value, name=name)),
    "idempotency_key": ("idempotency_key", lambda value, name: _text(value, name, 255)),
    "meta": ("meta_json", _meta),
    "connection": ("connection", lambda value, name: value),
}


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is not enqueued yet: its arguments are checked and encoded."""

    job_type: JobType[..., ..., Any]
    payload_json: str
    chosen: Chosen = field(default_factory=Chosen)

    def using(self, **options: Unpack[Options]) -> NewJob:
        """Return the same job with other options; those of `JobType.using`."""
        return replace(self, chosen=self.chosen.updated(options))


class Sender(Protocol):
    """Who puts jobs into the database: the App's client."""

    def enqueue(self, job: NewJob, /) -> Enqueued: ...
    def enqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]: ...
    async def aenqueue(self, job: NewJob, /) -> Enqueued: ...
    async def aenqueue_many(self, jobs: Iterable[NewJob], /, *, connection: Any = None) -> list[Enqueued]: ...


class JobType(Generic[P, Q, R]):
    """A declared job type. `P` are the arguments it is enqueued with, `Q` those of the function as written, `R` what that returns."""

    func: Callable[Q, R]
    """The function as written."""

    def __init__(self, registry: Jobs, name: str, func: Callable[Q, R], takes_context: bool, settings: Settings) -> None:
        self.registry = registry
        self.name = name
        self.func = func
        self.takes_context = takes_context
        self.settings = settings
        self.is_async = inspect.iscoroutinefunction(func)
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func) or not inspect.isroutine(func):
            raise DeclarationError(f"job type {name!r}: its handler must be a plain or an async function, not {func!r}")
        self.codec = Codec.of(func, job_type=name, takes_context=takes_context)
        self.rules = Rules(settings.max_attempts, settings.retry, settings.retry_on, settings.fatal_on)
        self.chosen = Chosen()

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> R:
        """Run the function here and now, as if it were not decorated."""
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name!r}>"

    @property
    def place(self) -> str:
        """Where the handler is written, as file:line."""
        code = getattr(inspect.unwrap(self.func), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.func)

    def using(self, **options: Unpack[Options]) -> JobType[P, Q, R]:
        """Return the same job type with options for the jobs enqueued through it.

        Args:
            run_at: aware datetime, the earliest time to run; one in the past means now. Defaults to now, by the database's clock.
            delay: the same as a duration from now.
            priority: −100 … 100, higher first. Defaults to the type's.
            queue: where to put it. Defaults to the type's.
            max_attempts: 1 … 10,000. Defaults to the type's when the attempt is settled.
            expires: duration from run_at after which it is not started any more. Defaults to the type's.
            idempotency_key: 1 … 255 characters; a second job of this type with the same key is not inserted.
            meta: a mapping kept with the job, in JSON; no handler argument.
            connection: a psycopg connection (async for the `a…` calls) whose transaction the INSERT joins; never committed, rolled back or closed.

        Raises:
            UsageError: an option is out of range or unknown.
        """
        other = copy.copy(self)
        other.chosen = self.chosen.updated(options)
        return other

    def new(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return a job with these arguments, for `enqueue_many`. Raises PayloadError when they do not fit."""
        return NewJob(self, self.codec.encode(args, kwargs), self.chosen)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Insert a job with these arguments.

        Raises:
            PayloadError: the arguments do not fit; nothing was inserted, the caller's transaction can still be used.
            DatabaseUnavailable: the database does not answer.
        """
        return self.registry.sender.enqueue(self.new(*args, **kwargs))

    def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Enqueued]:
        """Insert a job with these arguments; `await` it. The arguments are checked at the call."""
        return self._named("aenqueue", self.registry.sender.aenqueue(self.new(*args, **kwargs)))

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Insert a job for each mapping of arguments, all or none; results are in the order of the input."""
        return self.registry.sender.enqueue_many(self._new_many(arguments))

    def aenqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> Coroutine[Any, Any, list[Enqueued]]:
        """Insert a job for each mapping of arguments, all or none; `await` it."""
        return self._named("aenqueue_many", self.registry.sender.aenqueue_many(self._new_many(arguments)))

    def _new_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[NewJob]:
        if isinstance(arguments, Mapping):
            raise UsageError(f"job type {self.name!r}: enqueue_many takes a list of mappings, not one mapping")
        return [NewJob(self, self.codec.encode((), dict(given), index), self.chosen) for index, given in enumerate(arguments)]

    def _named(self, verb: str, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        # What Python's warning prints of a coroutine that was never awaited.
        coroutine.__qualname__ = f"{verb} of job type {self.name!r}"  # type: ignore[attr-defined]
        return coroutine

    def arguments(self, job: Job) -> tuple[dict[str, Any], frozenset[str]]:
        """Decode a stored payload into arguments, and the names of unknown fields that were ignored. Raises PayloadError when it does not fit."""
        stored, current = job.payload_version, self.settings.version or 1
        if stored == current:
            return self.codec.decode(job.payload_json)
        if stored is None:
            if not self.settings.upgrade:
                return self.codec.decode(job.payload_json)
            try:
                return self.codec.decode(job.payload_json)
            except PayloadError:
                stored = 1
        if stored > current:
            raise PayloadError(self.name, None, f"stored as version {stored}, this release knows up to version {current}")
        payload = job.payload
        for version in range(stored, current):
            payload = self.settings.upgrade[version](payload)
        return self.codec.validate(payload)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job type declares, checked. Durations are seconds."""

    queue: str
    priority: int
    max_attempts: int
    retry: RetryPolicy
    timeout_s: float
    lease_s: float | None
    """None: the App's."""
    expires_s: float | None
    retry_on: Errors
    fatal_on: Errors
    version: int | None
    upgrade: Mapping[int, Upgrade]
    aliases: tuple[str, ...]
    key_ttl_s: float


class _Plain(Protocol):
    def __call__(self, func: Callable[P, R], /) -> JobType[P, P, R]: ...


class _WithContext(Protocol):
    def __call__(self, func: Callable[Concatenate[Context, P], R], /) -> JobType[P, Concatenate[Context, P], R]: ...


class Jobs:
    """A list of job types without an App, like a router. It belongs to one App: `App(jobs=[jobs])`."""

    def __init__(self) -> None:
        self.types: dict[str, JobType[..., ..., Any]] = {}
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender:
        """The client of the App that these jobs belong to. Raises UsageError before there is one."""
        if self._sender is None:
            raise UsageError("these jobs belong to no App yet: create rota.App(jobs=[jobs]) before enqueueing")
        return self._sender

    def bind(self, sender: Sender) -> None:
        """Make these jobs those of one App. Raises DeclarationError when they are another's."""
        if self._sender is not None and self._sender is not sender:
            raise DeclarationError("this Jobs belongs to another App already; a Jobs belongs to one App")
        self._sender = sender

    @overload
    def job(
        self,
        name: str,
        *,
        takes_context: Literal[True],
        queue: str = ...,
        priority: int = ...,
        max_attempts: int = ...,
        retry: RetryPolicy = ...,
        timeout: Duration = ...,
        lease: Duration | None = ...,
        expires: Duration | None = ...,
        retry_on: Errors = ...,
        fatal_on: Errors = ...,
        version: int | None = ...,
        upgrade: Mapping[int, Upgrade] | None = ...,
        aliases: tuple[str, ...] = ...,
        key_ttl: Duration = ...,
    ) -> _WithContext: ...

    @overload
    def job(
        self,
        name: str,
        *,
        takes_context: Literal[False] = ...,
        queue: str = ...,
        priority: int = ...,
        max_attempts: int = ...,
        retry: RetryPolicy = ...,
        timeout: Duration = ...,
        lease: Duration | None = ...,
        expires: Duration | None = ...,
        retry_on: Errors = ...,
        fatal_on: Errors = ...,
        version: int | None = ...,
        upgrade: Mapping[int, Upgrade] | None = ...,
        aliases: tuple[str, ...] = ...,
        key_ttl: Duration = ...,
    ) -> _Plain: ...

    def job(
        self,
        name: str,
        *,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout: Duration = "5m",
        lease: Duration | None = None,
        expires: Duration | None = None,
        retry_on: Errors = (),
        fatal_on: Errors = (),
        takes_context: bool = False,
        version: int | None = None,
        upgrade: Mapping[int, Upgrade] | None = None,
        aliases: tuple[str, ...] = (),
        key_ttl: Duration = "90d",
    ) -> Any:
        """Declare a function as the handler of a job type. The reference page lists each option with unit, default and range.

        Raises:
            DeclarationError: an option is out of range, the name is taken, or the handler cannot be called with a stored payload.
        """
        if not isinstance(name, str):
            raise DeclarationError('a job type needs a name: @jobs.job("send_welcome_email")')
        try:
            _text(name, "its name", 200)
            if not isinstance(takes_context, bool):
                raise UsageError(f"takes_context must be True or False, not {takes_context!r}")
            settings = Settings(
                queue=_queue(queue, "queue"),
                priority=_priority(priority, "priority"),
                max_attempts=_max_attempts(max_attempts, "max_attempts"),
                retry=_policy(retry),
                timeout_s=seconds(timeout, name="timeout", least=0.001),
                lease_s=None if lease is None else seconds(lease, name="lease", least=LEASE_S_MIN),
                expires_s=None if expires is None else seconds(expires, name="expires"),
                retry_on=_errors(retry_on, "retry_on"),
                fatal_on=_errors(fatal_on, "fatal_on"),
                version=None if version is None else _integer(version, "version", 1, 32_767),
                upgrade=_upgrades(version, upgrade or {}),
                aliases=tuple(_text(alias, "aliases", 200) for alias in _names(aliases)),
                key_ttl_s=seconds(key_ttl, name="key_ttl"),
            )
        except UsageError as error:
            raise DeclarationError(f"job type {name!r}: {error}") from None

        def declare(func: Callable[..., Any]) -> JobType[..., ..., Any]:
            return self._add(JobType(self, name, func, takes_context, settings))

        return declare

    def _add(self, job_type: JobType[..., ..., Any]) -> JobType[..., ..., Any]:
        refuse_duplicates([*self.types.values(), job_type])
        self.types[job_type.name] = job_type
        return job_type


def refuse_duplicates(types: Iterable[JobType[..., ..., Any]]) -> None:
    """Raise DeclarationError when two types share a name or an alias, naming both places."""
    seen: dict[str, JobType[..., ..., Any]] = {}
    for job_type in types:
        for name in (job_type.name, *job_type.settings.aliases):
            if name in seen:
                raise DeclarationError(f"job type {name!r} is declared twice: at {seen[name].place} and at {job_type.place}")
            seen[name] = job_type


def _policy(value: Any) -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise UsageError(f"retry must be a retry policy such as rota.Exponential(), not {value!r}")
    return value


def _errors(value: Any, name: str) -> Errors:
    if not isinstance(value, tuple) or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in value):
        raise UsageError(f"{name} must be a tuple of exception classes, not {value!r}")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list):
        raise UsageError(f"aliases must be a tuple of names, not {value!r}")
    return tuple(value)


def _upgrades(version: int | None, upgrade: Mapping[int, Upgrade]) -> Mapping[int, Upgrade]:
    if not isinstance(upgrade, Mapping) or not all(map(callable, upgrade.values())):
        raise UsageError(f"upgrade must be a mapping of versions to functions, not {upgrade!r}")
    if upgrade and set(upgrade) != set(range(1, version or 1)):
        raise UsageError(f"upgrade must have a function for each version from 1 to {(version or 1) - 1}, not for {sorted(upgrade)}")
    if (version or 1) > 1 and not upgrade:
        raise UsageError(
            f"version {version} needs upgrade={{1: …}}: a function for each older version, or stored payloads could not be read"
        )
    return dict(upgrade)
