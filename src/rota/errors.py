"""Every exception that Rota raises.

Each class says whose fault it is, what the state is now, and what to do. The facts are fields, and
every exception can be pickled. A class also has the base that Python has for such an error, as
TimeoutError: `except`, `retry_on` and `fatal_on` go by class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, TypeVar

F = TypeVar("F", bound=Callable[..., None])


class RotaError(Exception):
    """The base class of all exceptions that Rota raises on purpose."""

    exit_code = 1
    """Exit status of a command that this exception ends."""

    def __init__(self, *args: object, **fields: Any) -> None:
        super().__init__(*args)
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[RotaError], args: tuple[Any, ...], fields: dict[str, Any]) -> RotaError:
    error = kind.__new__(kind, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(fields)
    return error


def refuse_attribute(of: str, name: str, called_here: Mapping[str, str]) -> NoReturn:
    """Raise AttributeError with Rota's name for another library's. Python adds similar names."""
    meant = f"; in Rota: {called_here[name]}" if name in called_here else ""
    raise AttributeError(f"{of} has no attribute {name!r}{meant}")


def explains(called_here: Mapping[str, str]) -> Callable[[F], F]:
    """Let an `__init__` raise UsageError for an argument that it does not have: with Rota's name
    for another library's, otherwise with the arguments that there are."""

    def decorate(init: Any) -> Any:
        of = f"rota.{init.__qualname__.partition('.')[0]}"
        takes = list(signature(init).parameters)[1:]

        @wraps(init)
        def check_and_init(self: Any, /, *args: Any, **given: Any) -> None:
            for name in given:
                if name in called_here:
                    raise UsageError(f"{of} takes no {name!r}; in Rota: {called_here[name]}")
                if name not in takes:
                    nearest = next(iter(get_close_matches(name, takes, 1)), None)
                    raise UsageError(
                        f"{of} takes no {name!r}{_suggest(nearest)}; it takes {', '.join(takes)}"
                    )
            init(self, *args, **given)

        return check_and_init

    return decorate


def _suggest(nearest: str | None) -> str:
    return f"; did you mean {nearest!r}?" if nearest else ""


# Your code


class UsageError(RotaError, ValueError):
    """Your code calls Rota with invalid arguments. Nothing was written."""

    exit_code = 2


class DeclarationError(UsageError):
    """A declaration of a job type, a schedule or an App is invalid.

    An option is out of range, a name is used twice, or Rota cannot call the handler.
    """


class PayloadError(UsageError):
    """The arguments of a job do not fit its handler, or cannot be stored. Nothing was inserted.

    The caller's transaction, if any, is still usable, unless the payload limit was lowered since
    this process read it: then the table refuses the job, and the transaction is aborted.
    """

    job_type: str
    """Name of the job type."""
    argument: str | None
    """Path of the wrong argument, as in `day` or `filter.from`; None: the payload as a whole."""
    reason: str
    """What is wrong, in words."""
    index: int | None
    """Position in the list of jobs, from 0; None for a single job."""

    def __init__(
        self, job_type: str, argument: str | None, reason: str, index: int | None = None
    ) -> None:
        at = "" if index is None else f" (job {index} of the list)"
        what = "payload" if argument is None else f"argument {argument!r}"
        super().__init__(
            f"job type {job_type!r}{at}: {what}: {reason}",
            job_type=job_type,
            argument=argument,
            reason=reason,
            index=index,
        )


class UnknownJobType(UsageError, LookupError):
    """The App declares no job type with this name. Nothing was inserted."""

    job_type: str
    """The name that was asked for."""
    nearest: str | None
    """The most similar name that is declared, if any is similar."""

    def __init__(self, job_type: str, nearest: str | None = None, advice: str = "") -> None:
        super().__init__(
            f"unknown job type {job_type!r}{_suggest(nearest)}{advice}",
            job_type=job_type,
            nearest=nearest,
        )


class JobNotFound(UsageError, LookupError):
    """No job has this id: it never existed, retention has deleted its history, or its transaction
    has not committed yet."""

    job: int
    """The id that was asked for."""

    def __init__(self, job: int) -> None:
        super().__init__(
            f"no job {job}: it never existed, retention has deleted it, "
            "or its transaction has not committed yet",
            job=job,
        )


class BatchNotFound(UsageError, LookupError):
    """No batch has this id: it never existed, or retention has deleted it."""

    batch: int
    """The id that was asked for."""

    def __init__(self, batch: int) -> None:
        super().__init__(
            f"no batch {batch}: it never existed, or retention has deleted it", batch=batch
        )


class EffectNotFound(UsageError, LookupError):
    """No effect has this key, or no step of that job this name: it never began, did not happen, or
    retention has deleted it."""

    key: str
    """Key of the effect, or name of the step."""
    job: int | None
    """The job that was named; None: the effect is no step."""

    def __init__(self, key: str, job: int | None = None) -> None:
        what = f"effect {key!r}" if job is None else f"step {key!r} of job {job}"
        super().__init__(f"no {what}; `rota effects` lists what there is", key=key, job=job)


class EffectHeld(RotaError):
    """A running job is at this effect. Nothing was changed; wait for its end, or cancel the job."""

    key: str
    """Key of the effect; of a step, its name."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a running job is at effect {key!r}: nothing was changed; wait for it, or cancel it",
            key=key,
        )


class KeyNotFound(UsageError, LookupError):
    """No job holds this idempotency key: none ever did, it was cancelled, or its time is over."""

    key: str
    """The idempotency key that was asked for."""
    job_type: str | None
    """The type that was asked for; None: any."""

    def __init__(self, key: str, job_type: str | None) -> None:
        of = "no job" if job_type is None else f"no job of type {job_type!r}"
        super().__init__(f"{of} holds the idempotency key {key!r}", key=key, job_type=job_type)


class ScheduleNotFound(UsageError, LookupError):
    """No schedule has this name: it never existed, or was deleted."""

    schedule: str
    """The name that was asked for."""
    nearest: str | None
    """The most similar name of a schedule, if any is similar."""

    def __init__(self, schedule: str, nearest: str | None = None) -> None:
        super().__init__(
            f"no schedule {schedule!r}{_suggest(nearest)}", schedule=schedule, nearest=nearest
        )


class LimitNotFound(UsageError, LookupError):
    """No worker and no `rota sync` has declared a rate limit of this name."""

    limit: str
    """The name that was asked for."""

    def __init__(self, limit: str) -> None:
        super().__init__(
            f"no rate limit {limit!r}; `rota limits` lists what there is, and a worker or `rota "
            "sync` declares the limits that code names",
            limit=limit,
        )


class WrongStatus(RotaError):
    """The job's status does not allow this action. Nothing was changed.

    For example, a finished job cannot be cancelled, only a dead job can be archived, and a dead job
    whose key another job has taken cannot be retried.
    """

    job: int
    """Id of the job that was to be changed."""
    wanted: tuple[str, ...]
    """The statuses that allow the action."""
    status: str
    """The status of the job."""

    def __init__(
        self,
        job: int,
        wanted: tuple[str, ...],
        status: str,
        advice: str = "",
        holder: int | None = None,
    ) -> None:
        *others, last = wanted
        either = f"{', '.join(others)} or {last}" if others else last
        why = f"{status} and already archived" if status in wanted else f"{status}, not {either}"
        if holder is not None:
            why = f"{status}, and job {holder} holds its key"
        super().__init__(
            f"job {job} is {why}; nothing was changed{advice}",
            job=job,
            wanted=wanted,
            status=status,
        )


class KeyTaken(RotaError):
    """Another job has the idempotency key, and `on_duplicate` is "raise". Nothing was inserted.

    The caller's transaction, if any, is still usable.
    """

    job: int
    """The job that has the key."""
    job_type: str
    """Name of the type of the job that was not inserted."""
    key: str
    """The idempotency key of both jobs."""
    status: str
    """The status of the job that has the key."""
    index: int | None
    """Position in the list of jobs, from 0; None for a single job."""

    def __init__(
        self, job: int, job_type: str, key: str, status: str, index: int | None = None
    ) -> None:
        at = "" if index is None else f" (job {index} of the list)"
        super().__init__(
            f"job type {job_type!r}{at}: job {job} ({status}) has the idempotency key {key!r}; "
            "nothing was inserted",
            job=job,
            job_type=job_type,
            key=key,
            status=status,
            index=index,
        )


class JoinTimeout(RotaError, TimeoutError):
    """The job did not finish within the timeout of `join`. The job itself continues."""

    job: int
    """Id of the job that was waited for."""
    status: str
    """The job's status at the timeout, such as `queued`."""
    timeout_s: float
    """The timeout in seconds."""

    def __init__(self, job: int, status: str, timeout_s: float) -> None:
        super().__init__(
            f"job {job} is still {status} after {timeout_s:g} s; the job continues",
            job=job,
            status=status,
            timeout_s=timeout_s,
        )


# Your configuration


class ConfigurationError(RotaError):
    """A setting is missing or invalid. Nothing was started."""

    exit_code = 3


class SecretKeyMissing(ConfigurationError):
    """A value is sealed under a key that ROTA_SECRET_KEYS of this process lacks, or has with
    another value. Nothing was changed."""

    key_id: str
    """The id of the key."""

    def __init__(self, key_id: str, *, is_other: bool = False) -> None:
        super().__init__(
            f"a value that is sealed under key {key_id!r} cannot be opened: it was changed, or "
            "ROTA_SECRET_KEYS has another key of this id"
            if is_other
            else f"a value is sealed under key {key_id!r}, which ROTA_SECRET_KEYS does not have "
            "here",
            key_id=key_id,
        )


class EmbeddedError(ConfigurationError):
    """The private PostgreSQL cannot be started or stopped on this machine."""


class SchemaError(ConfigurationError):
    """The database cannot hold Rota's schema, or its schema does not fit this release.

    Nothing was changed.
    """


class SchemaMissing(SchemaError):
    """The schema is missing, or older than this release needs. Run `rota migrate`."""


class SchemaTooNew(SchemaError):
    """A newer, incompatible release has migrated the schema. Install that release."""


# The database


class DatabaseUnavailable(RotaError):
    """The database does not answer, or refuses connections. Try again later.

    Nothing that was not committed is done. If the connection broke during a commit, its outcome is
    unknown.
    """

    exit_code = 5
    refused: bool = False
    """Whether the database answered, and refused only one statement of a worker."""
    in_doubt: bool = False
    """Whether the answer to an enqueue was lost, so that the job may have been inserted."""


class CopiedDatabase(RotaError):
    """The database is a restored copy, or was renamed, or its server was replaced.

    A drain claimed nothing and changed no job. To let this copy run its jobs, run
    `rota queues resume --copy`.
    """

    exit_code = 6
    reason: str
    """The difference between the database and its own record."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this database is a restored copy ({reason}): nothing was claimed; "
            "run `rota queues resume --copy` to let it run its jobs",
            reason=reason,
        )


# The end of a worker


class WorkerExhausted(RotaError):
    """Handlers that do not stop after their timeouts have taken all slots of the worker.

    The worker finished its other jobs, returned the rest to the queue and ended. Start it again,
    and give the calls in these handlers timeouts of their own.
    """

    exit_code = 4
    job_types: list[str]
    """Names of the types of these handlers, one for each handler, sorted."""

    def __init__(self, job_types: list[str]) -> None:
        super().__init__(
            "handlers that do not stop after their timeouts have taken all slots of this worker "
            f"({', '.join(job_types)}); jobs that had not begun are back in the queue, and it "
            "ended: start it again, and give the calls in these handlers timeouts of their own",
            job_types=job_types,
        )


# In a handler


class AttemptCancelled(RotaError):
    """The attempt must stop.

    The job was cancelled, the attempt timed out, its lease was lost, or the worker is stopping.
    """

    reason: str
    """Why it must stop, as in "it was cancelled: no reason given"."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the attempt must stop: {reason}", reason=reason)


class AttemptTimeout(RotaError, TimeoutError):
    """The attempt ran longer than its job type's timeout. It counts as a transient failure."""

    timeout_s: float
    """The timeout in seconds."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"the attempt ran longer than its timeout of {timeout_s:g} s", timeout_s=timeout_s
        )


class MemoryExceeded(RotaError):
    """The attempt's process was killed: its resident memory exceeded the type's `max_memory`.

    It counts as a transient failure.
    """

    limit_bytes: int
    """The type's `max_memory` in bytes."""
    used_bytes: int
    """Resident memory of the process before it was killed, in bytes."""

    def __init__(self, limit_bytes: int, used_bytes: int) -> None:
        limit, used = f"{limit_bytes / 1024**2:.0f} MiB", f"{used_bytes / 1024**2:.0f} MiB"
        super().__init__(
            f"the attempt's process was killed: it used {used} of memory, max_memory is {limit}",
            limit_bytes=limit_bytes,
            used_bytes=used_bytes,
        )


class ProgramFailed(RotaError):
    """The program of a command exited with another status than 0, or was killed.

    It counts as a transient failure.
    """

    how: str
    """As in "exited with status 3" or "was killed by SIGSEGV"."""
    rota_rule = "exit status"
    output: str
    """The end of the program's output, at most 4 KiB."""

    def __init__(self, program: str, how: str, output: str) -> None:
        # A list shows only the beginning of a text, and the last line says most.
        last = output.rstrip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        rest = f"\n{output}" if last != output.rstrip() else ""
        super().__init__(f"{program} {how}{said}{rest}", how=how, output=output)


class ProcessDied(RotaError):
    """The attempt's process ended before its handler, or could not start.

    It counts as a transient failure.
    """

    how: str
    """As in "was killed by SIGSEGV" or "exited with status 3"."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the attempt's process {how}", how=how)
