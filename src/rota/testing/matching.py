"""The jobs that a test means, and how other jobs differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.declare.declaration import Declaration
from rota.declare.job_type import JobType
from rota.declare.options import EnqueueOptions
from rota.declare.parameter import field_of
from rota.errors import PayloadError, UsageError
from rota.model.failure import list_names, one_line
from rota.model.job import Job, Status
from rota.model.scrub import MASK
from rota.model.units import plural, words

PENDING = (Status.QUEUED, Status.WAITING, Status.FAILED)
"""The statuses of a job that will run, for the first time or again."""
SHOWN_MAX = 20
"""Most jobs that a message lists."""
LINE_MAX = 300
"""Most characters of a listed job."""
CLOSE_S = 1.0
"""How far a duration may differ, in seconds: instants of two statements do."""
_ABSENT = object()
_COMPARED = (
    "run_at", "priority", "queue", "max_attempts", "timeout", "idempotency_key",
    "group_key", "group_capacity",
)  # fmt: skip
"""The options that a job keeps as given."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The jobs that a test means: of a type, with some of its arguments and options."""

    name: str
    job_type: Declaration | None
    """None: the App does not declare it."""
    arguments: Mapping[str, Any]
    """Arguments as the handler gets them."""
    options: EnqueueOptions
    """The options of `job_type.using(…)`."""

    @classmethod
    def of(
        cls,
        job_type: JobType[..., ..., Any] | str,
        types: Mapping[str, Declaration],
        arguments: Mapping[str, Any],
    ) -> Wanted:
        """Check what a test asks for. `types` are the App's, by name and by alias.

        Raises:
            UsageError: the type is another App's, or no job of it can have such an argument.
        """
        given: object = job_type
        if not isinstance(given, JobType | str):
            raise UsageError(f"name a job type, as welcome or 'welcome', not {given!r}")
        name = given if isinstance(given, str) else given.name
        found = types.get(name)
        if isinstance(given, JobType) and found is not given._declaration:
            raise UsageError(f"job type {name!r} is not one of the App that is tested")
        if found is None:
            return cls(name, None, arguments, EnqueueOptions())
        options = given._options if isinstance(given, JobType) else EnqueueOptions()
        return cls(found.name, found, _read_wanted(found, arguments), options)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the type's jobs; an alias if SQL or an older release inserts."""
        aliases = () if self.job_type is None else self.job_type.options.aliases
        return (self.name, *aliases)

    def describe(self) -> str:
        wanted = [
            f"{name}={_show_argument(self.job_type, name, value)}"
            for name, value in self.arguments.items()
        ]
        wanted += [f"{name} {shown}" for name, shown in _list_options(self.options)]
        return f"{self.name!r}" + (f" with {', '.join(wanted)}" if wanted else "")

    def find_differences(self, job: Job) -> list[str]:
        """Say how a job of this type differs; nothing: the job is meant."""
        had = read_arguments(self.job_type, job)
        differences = []
        for name, value in self.arguments.items():
            has = had.get(name, _ABSENT)
            if has is _ABSENT:
                differences.append(f"it has no {name}")
            elif has != value:
                shown = [_show_argument(self.job_type, name, argument) for argument in (has, value)]
                is_other = "another" if MASK in shown else f"{shown[0]}, not {shown[1]}"
                differences.append(f"{name} is {is_other}")
        return differences + _compare_options(self.options, job)


def _read_wanted(job_type: Declaration, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the handler would get them. A value without a JSON form, such as
    `unittest.mock.ANY`, stays as it is. Raises UsageError."""
    codec, name = job_type.codec, job_type.name
    unknown = sorted(arguments.keys() - codec.parameters)
    if unknown:
        takes = list_names(sorted(codec.parameters)) or "no arguments"
        raise UsageError(f"job type {name!r} takes {takes}, not {unknown[0]}")
    try:
        return {key: codec.read_one(key, value) for key, value in arguments.items()}
    except PayloadError as error:
        raise UsageError(f"no job can have this argument: {error}") from None


def read_arguments(job_type: Declaration | None, job: Job) -> dict[str, Any]:
    """Return the handler's arguments with its defaults, in its order; unreadable ones as stored."""
    if job_type is None:
        return job.payload
    try:
        arguments, _ = job_type.arguments(job)
    except PayloadError:
        return job.payload
    arguments = {**job_type.codec.defaults, **arguments}
    first = [name for name in job_type.codec.positional if name in arguments]
    return {name: arguments[name] for name in (*first, *arguments)}


def _show_argument(job_type: Declaration | None, name: str, value: object) -> str:
    """Return a value in a message: `***` of a secret or personal argument."""
    codec = None if job_type is None else job_type.codec
    if codec is not None and field_of(name) in codec.secret | codec.personal:
        return MASK
    return repr(value)


def _list_options(options: EnqueueOptions) -> list[tuple[str, str]]:
    """Return the set options and their values."""
    durations = {"delay": options.delay_s, "expires": options.expires_s}
    shown = {
        **{name: getattr(options, name) for name in _COMPARED},
        **{name: None if long_s is None else words(long_s) for name, long_s in durations.items()},
        "meta": options.meta_json,
    }
    return [(name, str(value)) for name, value in shown.items() if value is not None]


def _compare_options(options: EnqueueOptions, job: Job) -> list[str]:
    differences = []
    for name in _COMPARED:
        wanted, has = getattr(options, name), getattr(job, name)
        if wanted is not None and wanted != has:
            differences.append(f"{name} is {_show(has)}, not {_show(wanted)}")
    durations = [("delay", options.delay_s, job.run_at - job.created_at)]
    if job.expires_at is not None:
        durations.append(("expires", options.expires_s, job.expires_at - job.run_at))
    elif options.expires_s is not None:
        differences.append("it does not expire")
    for name, wanted_s, has in durations:
        if wanted_s is not None and abs(has.total_seconds() - wanted_s) > CLOSE_S:
            differences.append(f"{name} is {_show(has)}, not {words(wanted_s)}")
    if options.meta_json is not None:
        has_meta = job.meta or {}
        for name, value in msgspec.json.decode(options.meta_json, type=dict[str, Any]).items():
            if has_meta.get(name) != value:
                differences.append(f"meta.{name} is {has_meta.get(name)!r}, not {value!r}")
    return differences


def _show(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return words(value.total_seconds()) if isinstance(value, timedelta) else repr(value)


def explain_jobs(wanted: Wanted, types: Mapping[str, Declaration], jobs: Sequence[Job]) -> str:
    """List jobs for a message, the jobs nearest to the wanted job first."""
    if not jobs:
        return "there is no job at all"

    def rank(job: Job) -> tuple[bool, int, bool, int]:
        is_of_type = job.job_type in wanted.names
        differences = len(wanted.find_differences(job)) if is_of_type else 0
        return not is_of_type, differences, job.status not in PENDING, job.id

    lines = [_explain(wanted, types, job) for job in sorted(jobs, key=rank)]
    shown = "".join(f"\n  {one_line(line, LINE_MAX)}" for line in lines[:SHOWN_MAX])
    more = "" if len(lines) <= SHOWN_MAX else f"\n  … and {len(lines) - SHOWN_MAX} more"
    are = "is" if len(jobs) == 1 else "are"
    return f"there {are} {plural(len(jobs), 'job')}, nearest first:{shown}{more}"


def _explain(wanted: Wanted, types: Mapping[str, Declaration], job: Job) -> str:
    job_type = types.get(job.job_type)
    arguments = read_arguments(job_type, job)
    shown = ", ".join(
        f"{name}={_show_argument(job_type, name, value)}" for name, value in arguments.items()
    )
    line = f"job {job.id} {job.job_type}({shown}) is {job.status}"
    if job.job_type not in wanted.names:
        return line
    differences = wanted.find_differences(job)
    return f"{line}: {'; '.join(differences)}" if differences else line
