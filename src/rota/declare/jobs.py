"""A list of job types without an App, like a router: where handlers are declared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from rota.declare.chunk import Chunk, read_chunk
from rota.declare.connection import AsyncConnection, Connection, read_connection
from rota.declare.context import Context
from rota.declare.job_type import JobType, NewJob, Sender
from rota.declare.named_options import name_options
from rota.declare.options import JobOptions, JobTypeOptions
from rota.declare.place import CodePlace
from rota.declare.program import make_handler
from rota.declare.schedule import (
    TIMING_DEFAULTS,
    CommandOptions,
    ScheduleOptions,
    Timing,
    check_schedule,
    check_timing,
    make_bare_job,
)
from rota.declare.shared import refuse_twins
from rota.declare.tables import Tables
from rota.errors import DeclarationError, UsageError
from rota.model.bounds import NAME_MAX, check_bool, check_text
from rota.model.units import plural

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Plain(Protocol):
    def __call__(self, func: Callable[P, R], /) -> JobType[P, P, R]: ...


class _WithContext(Protocol):
    def __call__(
        self, func: Callable[Concatenate[Context, P], R], /
    ) -> JobType[P, Concatenate[Context, P], R]: ...


class _Chunked(Protocol):
    def __call__(self, func: Callable[[list[T]], R], /) -> JobType[[T], [list[T]], R]: ...


class _ChunkedWithContext(Protocol):
    def __call__(
        self, func: Callable[[Context, list[T]], R], /
    ) -> JobType[[T], [Context, list[T]], R]: ...


Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Jobs:
    """A list of job types without an App, like a router. It belongs to one App:
    `App(jobs=[jobs])`."""

    def __init__(
        self,
        *,
        lifespan: Lifespan | None = None,
        commands: Mapping[str, Callable[..., Any]] | None = None,
        tables: Tables | None = None,
    ) -> None:
        """Args:
            lifespan: as of `App`, for what these jobs share: each worker process enters it before
                its first job, and leaves it after its last. Its yielded value is not used.
            commands: functions that `rota NOUN VERB` calls, by both words: `{"mail find": find}`.
                Positional arguments are the command's, keyword-only arguments are its options, but
                for `connection`. It prints the return value: a list of named tuples as a table.
            tables: the tables and functions of these jobs in the schema; `call` calls a function.

        Raises:
            DeclarationError: the lifespan is no function, or a command has not two words.
        """
        refuse_no_lifespan(lifespan, "Jobs")
        for name, function in (commands or {}).items():
            if len(name.split()) != 2 or not callable(function):
                raise DeclarationError(f"Jobs: a command is 'NOUN VERB': function, not {name!r}")
        self._lifespan = lifespan
        self._commands = dict(commands or {})
        self.tables = tables
        """The part of these jobs in the schema; None: they have none."""
        self._types: dict[str, JobType[..., ..., Any]] = {}
        self._schedules: dict[str, ScheduleOptions] = {}
        self._owner: Sender | None = None

    def __repr__(self) -> str:
        return f"<Jobs with {plural(len(self.types), 'job type')}>"

    @property
    def types(self) -> Mapping[str, JobType[..., ..., Any]]:
        """The job types of this list, by name."""
        return MappingProxyType(self._types)

    @property
    def _sender(self) -> Sender:
        if self._owner is None:
            raise UsageError(
                "these jobs belong to no App yet: create rota.App(jobs=[jobs]) before enqueueing"
            )
        return self._owner

    def call(
        self,
        function: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        connection: Connection | UnsetType = UNSET,
        enqueues: NewJob | None = None,
    ) -> list[dict[str, Any]]:
        """Call a function of `tables`, and return its rows by column.

        Args:
            function: its name.
            arguments: by the names of its parameters, without `p_`; a missing argument is NULL. A
                parameter of type jsonb takes what JSON can hold.
            connection: yours, whose transaction the call joins. Defaults to a connection of Rota's.
            enqueues: a job like the jobs that the function enqueues: the App's rules and its
                enqueue middleware are around the call, and their meta is the argument `meta`.

        Raises:
            UsageError: there is no such function or parameter, or the function has refused a value.
            DatabaseUnavailable: the database does not answer.
        """
        text, joined = self._find_function(function), _join(connection, enqueues)
        with self._sender._carry(enqueues, joined) as more:
            rows: list[dict[str, Any]] = self._sender._call(
                text, {**(arguments or {}), **more}, connection=joined
            )
        return rows

    async def acall(
        self,
        function: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        connection: AsyncConnection | UnsetType = UNSET,
        enqueues: NewJob | None = None,
    ) -> list[dict[str, Any]]:
        """Call a function of `tables`. Arguments and errors are as in `call`."""
        text, joined = self._find_function(function), _join(connection, enqueues)
        with self._sender._carry(enqueues, joined) as more:
            rows: list[dict[str, Any]] = await self._sender._acall(
                text, {**(arguments or {}), **more}, connection=joined
            )
        return rows

    def _find_function(self, name: str) -> str:
        known = {} if self.tables is None else self.tables.functions
        if name not in known:
            raise UsageError(f"these jobs have no function {name!r} in their tables")
        return known[name]

    @overload
    def job(self, name: Callable[P, R], /) -> JobType[P, P, R]: ...

    @overload
    def job(
        self,
        name: str | None = ...,
        *,
        takes_context: Literal[True],
        chunk: int | Chunk,
        **options: Unpack[JobOptions],
    ) -> _ChunkedWithContext: ...

    @overload
    def job(
        self,
        name: str | None = ...,
        *,
        takes_context: Literal[False] = ...,
        chunk: int | Chunk,
        **options: Unpack[JobOptions],
    ) -> _Chunked: ...

    @overload
    def job(
        self,
        name: str | None = ...,
        *,
        takes_context: Literal[True],
        **options: Unpack[JobOptions],
    ) -> _WithContext: ...

    @overload
    def job(
        self,
        name: str | None = ...,
        *,
        takes_context: Literal[False] = ...,
        **options: Unpack[JobOptions],
    ) -> _Plain: ...

    @name_options
    def job(
        self,
        name: Any = None,
        *,
        takes_context: bool = False,
        chunk: Any = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Declare a function as the handler of a job type.

        Args:
            name: the routing string that is stored in every job, 1 … 200 printable characters.
                Defaults to the function's name; `@jobs.job` alone will do.
            takes_context: whether the handler's first parameter is its `Context`, which is no
                argument of the job. Defaults to False.
            chunk: most jobs that one call of the handler takes, 1 … 10,000, or a `rota.Chunk(…)`,
                which also says how long a job waits for others. The handler takes a list with an
                item for each job. Defaults to None: a call takes the arguments of one job.
            options: the keys of `JobOptions`, each documented there.

        Raises:
            DeclarationError: an option is unknown or out of range, the name is taken, or the
                handler cannot be called with a stored payload.
        """
        if name is None or callable(name):

            def declare_by_its_name(func: Callable[..., Any]) -> JobType[..., ..., Any]:
                called = getattr(func, "__name__", "")
                if not called.isidentifier():  # a lambda, say
                    raise DeclarationError('this handler needs a name: @jobs.job("send_mail")')
                given: Any = {"takes_context": takes_context, "chunk": chunk, **options}
                made: JobType[..., ..., Any] = self.job(called, **given)(func)
                return made

            return declare_by_its_name if name is None else declare_by_its_name(name)
        try:
            check_text(name, "the name", NAME_MAX)
            check_bool(takes_context, "takes_context")
            checked = JobTypeOptions.check(options)
            many = read_chunk(chunk, in_process=checked.process is not None)
        except UsageError as error:
            raise DeclarationError(f"job type {name!r}: {error}") from None

        def declare(func: Callable[..., Any]) -> JobType[..., ..., Any]:
            return self._add(JobType(self, name, func, takes_context, checked, many))

        return declare

    @name_options
    def command(
        self,
        name: str,
        program: str | Sequence[str],
        *,
        schedule: str | None = None,
        **options: Unpack[CommandOptions],
    ) -> JobType[[], [], Coroutine[Any, Any, dict[str, Any]]]:
        """Declare a program as a job type: `jobs.command("backup", "pg_dump -f /b shop",
        schedule="0 3 * * *", timeout="1h")`.

        The program runs in a process group of its own, with the worker's user, directory and
        environment. Exit status 0 is a success with the result `{"exit_status": 0, "output": "…"}`;
        any other fails the attempt. At most the last 4 KiB of the output are kept.

        Args:
            name: as of `job`, and the name of its schedule.
            program: its words as a shell would split them, or a list of words. No shell runs it; if
                you need a shell: `["sh", "-c", "…"]`.
            schedule: a cron expression of five fields. Defaults to None: it runs when enqueued.
            options: the keys of `JobOptions` but `process`; `max_attempts` defaults to 1. With
                `schedule` the keys of `Timing` too.

        Raises:
            DeclarationError: as `job` and `schedule`; the program has no words.
        """
        place = _find_caller()
        given: Any = {"max_attempts": 1, **options}
        timing: Any = {name: given.pop(name) for name in TIMING_DEFAULTS if name in given}
        try:
            if timing and schedule is None:
                raise UsageError(f"{min(timing)} needs schedule=")
            if given.get("process"):
                raise UsageError("a command takes no process: a program is a process of its own")
            handler = make_handler(program)
            handler.__name__ = handler.__qualname__ = check_text(name, "the name", NAME_MAX)
            handler.__module__ = place.module
            made: JobType[[], [], Any] = JobType(
                self, name, handler, False, JobTypeOptions.check(given)
            )
            made._declaration.place = place
            if schedule is not None:
                self._add_schedule(check_schedule(name, schedule, made.new(), timing, place))
        except UsageError as error:
            raise DeclarationError(f"command {name!r} at {place}: {error}") from None
        return self._add(made)

    @overload
    def schedule(
        self, name: str, cron: str | None, job: NewJob, **timing: Unpack[Timing]
    ) -> None: ...

    @overload
    def schedule(
        self, name: str, cron: str | None, job: None = ..., **timing: Unpack[Timing]
    ) -> Callable[[T], T]: ...

    @name_options
    def schedule(
        self, name: str, cron: str | None, job: NewJob | None = None, **timing: Unpack[Timing]
    ) -> Any:
        """Declare a schedule; as a decorator above `@jobs.job(…)`, for a job type without
        arguments.

        `app.sync()` and the start of a worker write the schedule to the database.

        Args:
            name: 1 … 200 characters, unique in the database.
            cron: a cron expression of five fields, or `@every 30s`; None: runs only if triggered.
            job: made with `job_type.new(…)`, with the options queue, priority, max_attempts,
                expires and meta of `using`.
            timing: the keys of `Timing`, documented there: timezone, catch_up, overlap, jitter.

        Raises:
            DeclarationError: the cron expression, the zone or an option is out of range, the name
                is taken, or the job type needs arguments.
        """
        place = _find_caller()
        with _locate_errors(name, place):
            check_timing(name, cron, timing)
            if job is not None:
                self._add_schedule(check_schedule(name, cron, job, timing, place))
                return None

        def decorate(job_type: T) -> T:
            with _locate_errors(name, place):
                bare = make_bare_job(job_type, name)
                self._add_schedule(check_schedule(name, cron, bare, timing, place))
            return job_type

        return decorate

    def _add_schedule(self, schedule: ScheduleOptions) -> None:
        others = [other for other in self._schedules.values() if not schedule.is_again(other)]
        refuse_twins("schedule", ((other.name, other.place) for other in (*others, schedule)))
        self._schedules[schedule.name] = schedule

    def _add(self, job_type: JobType[..., ..., Any]) -> JobType[..., ..., Any]:
        declared = job_type._declaration
        known = [job_type._declaration for job_type in self._types.values()]
        others = [job_type for job_type in known if not declared.is_again(job_type)]
        refuse_twins(
            "job type",
            ((name, job_type.place) for job_type in (*others, declared) for name in job_type.names),
        )
        self._types[job_type.name] = job_type
        return job_type


def _join(connection: Any, enqueues: NewJob | None) -> Any:
    """Return the connection of a call of a function; None would put what it enqueues elsewhere."""
    return None if connection is None and enqueues is None else read_connection(connection)


def refuse_no_lifespan(given: object, what: str) -> None:
    if given is not None and (
        not callable(given) or isinstance(given, AbstractAsyncContextManager)
    ):
        raise DeclarationError(
            f"{what}: lifespan must be a function, which each worker calls, not {given!r}"
        )


@contextmanager
def _locate_errors(name: Any, place: CodePlace) -> Iterator[None]:
    try:
        yield
    except DeclarationError:
        raise
    except UsageError as error:
        raise DeclarationError(f"schedule {name!r} at {place}: {error}") from None


def _find_caller() -> CodePlace:
    frame = sys._getframe(2)
    return CodePlace.of(frame.f_code, frame.f_lineno, frame.f_globals)
