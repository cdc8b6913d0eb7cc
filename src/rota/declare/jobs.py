"""A list of job types without an App, like a router: where handlers are declared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, get_args, overload

from rota.declare.context import Context
from rota.declare.job_type import JobType, NewJob, Sender
from rota.declare.schedule import Definition, check_options, defined, without_arguments
from rota.declare.settings import (
    LEASE_S_MIN,
    MAX_MEMORY,
    RECYCLE_AFTER,
    TIMEOUT_S_MIN,
    ExecutorKind,
    History,
    OnLost,
    Settings,
    Upgrade,
    check_aliases,
    check_errors,
    check_process,
    check_retry,
    check_upgrades,
)
from rota.errors import DeclarationError, UsageError
from rota.model.bounds import (
    EXPIRES_S_MIN,
    NAME_MAX,
    check_choice,
    check_integer,
    check_max_attempts,
    check_priority,
    check_queue,
    check_text,
)
from rota.model.retry import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY, ErrorTypes, RetryPolicy
from rota.model.schedule import CatchUp, Overlap
from rota.model.units import Duration, Size, seconds

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Plain(Protocol):
    def __call__(self, func: Callable[P, R], /) -> JobType[P, P, R]: ...


class _WithContext(Protocol):
    def __call__(
        self, func: Callable[Concatenate[Context, P], R], /
    ) -> JobType[P, Concatenate[Context, P], R]: ...


class Jobs:
    """A list of job types without an App, like a router. It belongs to one App: `App(jobs=[jobs])`."""

    def __init__(self) -> None:
        self.types: dict[str, JobType[..., ..., Any]] = {}
        self.definitions: dict[str, Definition] = {}
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender:
        """The client of the App that these jobs belong to. Raises UsageError before there is one."""
        if self._sender is None:
            raise UsageError(
                "these jobs belong to no App yet: create rota.App(jobs=[jobs]) before enqueueing"
            )
        return self._sender

    def bind(self, sender: Sender) -> None:
        """Make these jobs those of one App. Raises DeclarationError when they are another's."""
        self.refuse_other(sender)
        self._sender = sender

    def refuse_other(self, sender: Sender) -> None:
        """Raise DeclarationError when these jobs are those of another App."""
        if self._sender is not None and self._sender is not sender:
            raise DeclarationError(
                "this Jobs belongs to another App already; a Jobs belongs to one App"
            )

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
        retry_on: ErrorTypes = ...,
        fatal_on: ErrorTypes = ...,
        version: int | None = ...,
        upgrade: Mapping[int, Upgrade] | None = ...,
        aliases: tuple[str, ...] = ...,
        key_ttl: Duration = ...,
        history: History = ...,
        on_lost: OnLost = ...,
        executor: ExecutorKind | None = ...,
        max_memory: Size | None = ...,
        recycle_after: int = ...,
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
        retry_on: ErrorTypes = ...,
        fatal_on: ErrorTypes = ...,
        version: int | None = ...,
        upgrade: Mapping[int, Upgrade] | None = ...,
        aliases: tuple[str, ...] = ...,
        key_ttl: Duration = ...,
        history: History = ...,
        on_lost: OnLost = ...,
        executor: ExecutorKind | None = ...,
        max_memory: Size | None = ...,
        recycle_after: int = ...,
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
        retry_on: ErrorTypes = (),
        fatal_on: ErrorTypes = (),
        takes_context: bool = False,
        version: int | None = None,
        upgrade: Mapping[int, Upgrade] | None = None,
        aliases: tuple[str, ...] = (),
        key_ttl: Duration = "90d",
        history: History = "all",
        on_lost: OnLost = "retry",
        executor: ExecutorKind | None = None,
        max_memory: Size | None = MAX_MEMORY,
        recycle_after: int = RECYCLE_AFTER,
    ) -> Any:
        """Declare a function as the handler of a job type. The reference page lists each option with unit, default and range.

        Raises:
            DeclarationError: an option is out of range, the name is taken, or the handler cannot be called with a stored payload.
        """
        if not isinstance(name, str):
            raise DeclarationError('a job type needs a name: @jobs.job("send_welcome_email")')
        try:
            check_text(name, "the name", NAME_MAX)
            if not isinstance(takes_context, bool):
                raise UsageError(f"takes_context must be True or False, not {takes_context!r}")
            settings = Settings(
                queue=check_queue(queue, "queue"),
                priority=check_priority(priority, "priority"),
                max_attempts=check_max_attempts(max_attempts, "max_attempts"),
                retry=check_retry(retry),
                timeout_s=seconds(timeout, name="timeout", least=TIMEOUT_S_MIN),
                lease_s=None if lease is None else seconds(lease, name="lease", least=LEASE_S_MIN),
                expires_s=None
                if expires is None
                else seconds(expires, name="expires", least=EXPIRES_S_MIN),
                retry_on=check_errors(retry_on, "retry_on"),
                fatal_on=check_errors(fatal_on, "fatal_on"),
                version=None if version is None else check_integer(version, "version", 1, 32_767),
                upgrade=check_upgrades(version, upgrade or {}),
                aliases=check_aliases(aliases),
                key_ttl_s=seconds(key_ttl, name="key_ttl"),
                history=check_choice(history, "history", get_args(History)),
                on_lost=check_choice(on_lost, "on_lost", get_args(OnLost)),
                process=check_process(executor, max_memory, recycle_after),
            )
        except UsageError as error:
            raise DeclarationError(f"job type {name!r}: {error}") from None

        def declare(func: Callable[..., Any]) -> JobType[..., ..., Any]:
            return self._add(JobType(self, name, func, takes_context, settings))

        return declare

    @overload
    def schedule(
        self,
        name: str,
        cron: str | None,
        job: NewJob,
        *,
        timezone: str = ...,
        catch_up: CatchUp = ...,
        overlap: Overlap = ...,
        jitter: Duration | None = ...,
    ) -> None: ...

    @overload
    def schedule(
        self,
        name: str,
        cron: str | None,
        job: None = ...,
        *,
        timezone: str = ...,
        catch_up: CatchUp = ...,
        overlap: Overlap = ...,
        jitter: Duration | None = ...,
    ) -> Callable[[T], T]: ...

    def schedule(
        self,
        name: str,
        cron: str | None,
        job: NewJob | None = None,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "latest",
        overlap: Overlap = "skip",
        jitter: Duration | None = None,
    ) -> Any:
        """Declare what should run again and again; as a decorator above `@jobs.job(…)`, for a job type that needs no arguments.

        It comes into the database with `app.sync()` and when a worker starts.

        Args:
            name: 1 … 200 characters, one of its kind in the database.
            cron: five fields, minute hour day month weekday; None: it runs when somebody triggers it.
            job: made with `job_type.new(…)`, with the options queue, priority, max_attempts, expires and meta of `using`.
            timezone: in which the cron text is read, by its IANA name.
            catch_up: of ticks that came while no worker was up: `skip` all that are more than 5 min late, run the `latest`, or `all`, at most 100.
            overlap: whether a tick is skipped (`skip`) while an earlier run is queued, running or waits for a retry; `allow` runs both.
            jitter: a duration up to a day over which the runs are spread, each by a hash of name and tick. Defaults to none.

        Raises:
            DeclarationError: cron text, zone or an option cannot be, the name is taken, or the job type needs arguments.
        """
        place = _place()
        options: dict[str, Any] = {
            "timezone": timezone,
            "catch_up": catch_up,
            "overlap": overlap,
            "jitter": jitter,
            "place": place,
        }
        with _of_schedule(name, place):
            check_options(name, cron, **options)
            if job is not None:
                self._define(defined(name, cron, job, **options))
                return None

        def decorate(job_type: T) -> T:
            with _of_schedule(name, place):
                self._define(defined(name, cron, without_arguments(job_type, name), **options))
            return job_type

        return decorate

    def _define(self, definition: Definition) -> None:
        refuse_duplicate_schedules([*self.definitions.values(), definition])
        self.definitions[definition.name] = definition

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
                raise DeclarationError(
                    f"job type {name!r} is declared twice: "
                    f"at {seen[name].place} and at {job_type.place}"
                )
            seen[name] = job_type


def refuse_duplicate_schedules(definitions: Iterable[Definition]) -> None:
    """Raise DeclarationError when two schedules have one name, naming both places."""
    seen: dict[str, Definition] = {}
    for definition in definitions:
        if definition.name in seen:
            first = seen[definition.name]
            raise DeclarationError(
                f"schedule {definition.name!r} is declared twice: "
                f"at {first.place} and at {definition.place}"
            )
        seen[definition.name] = definition


@contextmanager
def _of_schedule(name: Any, place: str) -> Iterator[None]:
    try:
        yield
    except DeclarationError:
        raise
    except UsageError as error:
        raise DeclarationError(f"schedule {name!r} at {place}: {error}") from None


def _place() -> str:
    """Where the caller of a method of `Jobs` is written, as file:line."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
