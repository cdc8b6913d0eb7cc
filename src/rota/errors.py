"""Every exception that Rota raises.

Each class says whose fault it is, what state things are in now, and what to do. The facts are
fields as well as text, and every exception survives pickling.
"""

from __future__ import annotations

from typing import Any


class RotaError(Exception):
    """The root of everything Rota raises on purpose."""

    exit_code = 1
    """What the command line exits with when this ends it."""

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


def _suggest(nearest: str | None) -> str:
    return f"; did you mean {nearest!r}?" if nearest else ""


# Your code


class UsageError(RotaError):
    """Your code called Rota in a way that cannot work. Nothing was written."""

    exit_code = 2


class DeclarationError(UsageError):
    """A job type or an App is declared wrongly: a bad option, a duplicate name, a handler Rota cannot call."""


class PayloadError(UsageError):
    """The arguments of a job do not fit its handler, or cannot be stored. Nothing was inserted.

    The caller's transaction, where there is one, can still be used.
    """

    job_type: str
    argument: str | None
    """The path of the offending argument, as in `day` or `filter.from`; None when it is the payload as a whole."""
    reason: str
    index: int | None
    """The position in the call's list of jobs; None for a single job."""

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


class UnknownJobType(UsageError):
    """No job type of that name is declared here. Nothing was inserted."""

    job_type: str
    nearest: str | None

    def __init__(self, job_type: str, nearest: str | None = None, advice: str = "") -> None:
        super().__init__(
            f"unknown job type {job_type!r}{_suggest(nearest)}{advice}",
            job_type=job_type,
            nearest=nearest,
        )


class JobNotFound(UsageError):
    """No job has that id: it never existed, or its history was dropped by retention."""

    job: int

    def __init__(self, job: int) -> None:
        super().__init__(
            f"no job {job}: it never existed, or its history is no longer kept", job=job
        )


class ScheduleNotFound(UsageError):
    """No schedule has that name: it was never made, or was deleted."""

    schedule: str
    nearest: str | None

    def __init__(self, schedule: str, nearest: str | None = None) -> None:
        super().__init__(
            f"no schedule {schedule!r}{_suggest(nearest)}", schedule=schedule, nearest=nearest
        )


class WrongStatus(RotaError):
    """The job stands where this cannot be done to it: it is dead or over by now, or not dead yet. Nothing was changed."""

    job: int
    wanted: tuple[str, ...]
    """Where it would have to stand."""
    status: str
    """Where it stands."""

    def __init__(self, job: int, wanted: tuple[str, ...], status: str, advice: str = "") -> None:
        *others, last = wanted
        either = f"{', '.join(others)} or {last}" if others else last
        stands = (
            f"{status} and was archived already" if status in wanted else f"{status}, not {either}"
        )
        super().__init__(
            f"job {job} is {stands}; nothing was changed{advice}",
            job=job,
            wanted=wanted,
            status=status,
        )


class JoinTimeout(RotaError):
    """The job was not over when the time to wait for it was. The job itself goes on."""

    job: int
    status: str

    def __init__(self, job: int, status: str, timeout_s: float) -> None:
        super().__init__(
            f"job {job} is still {status} after {timeout_s:g} s; it goes on by itself",
            job=job,
            status=status,
            timeout_s=timeout_s,
        )


# Your configuration


class ConfigurationError(RotaError):
    """A setting is missing or wrong. Nothing was started."""

    exit_code = 3


class EmbeddedError(ConfigurationError):
    """The private PostgreSQL cannot be started or stopped here."""


class SchemaError(ConfigurationError):
    """The database cannot carry Rota's schema, or not this release of it. Nothing was changed."""


class SchemaMissing(SchemaError):
    """The schema was never migrated, or not up to what this release needs. Run `rota migrate`."""


class SchemaTooNew(SchemaError):
    """The schema was migrated by a release that this one cannot live with. Install the newer release."""


# The database


class DatabaseUnavailable(RotaError):
    """The database does not answer, or refuses connections. What was not committed was not done; try again."""

    exit_code = 5
    refused: bool = False
    """Whether it answers, and refused a statement of a worker's: others may go through."""


class CopiedDatabase(RotaError):
    """The database is a restored copy, or was renamed, or its server replaced: the schema's stamp says so. A drain claimed nothing and changed no job.
    If this copy is to work, run `rota resume --copy`."""

    exit_code = 6
    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this is a restored copy ({reason}): nothing was claimed; run `rota resume --copy` if it is to do the work of its jobs",
            reason=reason,
        )


# A worker's own end


class WorkerExhausted(RotaError):
    """As many handlers as the worker has slots go on past their timeouts and do not stop. It finished what else ran, handed back the rest and ended;
    start it again, and give those handlers timeouts of their own."""

    exit_code = 4
    job_types: list[str]

    def __init__(self, job_types: list[str]) -> None:
        super().__init__(
            f"all slots of this worker were given up to handlers that do not stop after their timeouts ({', '.join(job_types)}); it handed back "
            "what had not begun and ended: start it again, and give the calls that these handlers make timeouts of their own",
            job_types=job_types,
        )


class ProcessesFailed(RotaError):
    """The worker processes of `rota work --processes` ended again and again. Those that had not were stopped in order; start it again."""

    exit_code = 4


# What a handler may meet


class AttemptCancelled(RotaError):
    """The attempt was told to stop: somebody cancelled the job, it ran out of time, lost its lease, or the worker is going down."""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(f"the attempt was told to stop: {reason}", reason=reason)


class AttemptTimeout(RotaError):
    """The attempt ran longer than its type's timeout. It counts as a failed, transient attempt."""

    timeout_s: float

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"the attempt ran longer than its timeout of {timeout_s:g} s", timeout_s=timeout_s
        )


class MemoryExceeded(RotaError):
    """The attempt's process held more resident memory than its type's `max_memory` and was killed. It counts as a failed, transient attempt."""

    limit_bytes: int
    used_bytes: int

    def __init__(self, limit_bytes: int, used_bytes: int) -> None:
        limit, used = f"{limit_bytes / 1024**2:.0f} MiB", f"{used_bytes / 1024**2:.0f} MiB"
        super().__init__(
            f"the attempt's process was killed: it held {used} of memory, and max_memory is {limit}",
            limit_bytes=limit_bytes,
            used_bytes=used_bytes,
        )


class ProcessDied(RotaError):
    """The attempt's process ended before its handler did, or could not begin. It counts as a failed, transient attempt."""

    how: str
    """As in "was killed by SIGSEGV" or "exited with status 3"."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the attempt's process {how}", how=how)
