"""The options of a schedule, checked: from code, from the API and from the command line."""

from __future__ import annotations

from typing import Any, TypedDict, get_args

import msgspec

from rota.declare.job_type import JobType, NewJob
from rota.declare.options import EnqueueOptions, JobOptions
from rota.declare.place import CodePlace
from rota.declare.taking import refuse_taking
from rota.errors import PayloadError, UsageError
from rota.model.asks import add_asks
from rota.model.bounds import NAME_MAX, check_choice, check_text
from rota.model.cron import parse
from rota.model.schedule import JITTER_S_MAX, MIDNIGHT, CatchUp, Overlap
from rota.model.units import Duration, format_interval, seconds


class Timing(TypedDict, total=False):
    """The options of a schedule besides its cron expression. All are optional."""

    timezone: str
    """The IANA name of the zone of the cron expression. Defaults to "UTC"."""
    catch_up: CatchUp
    """Which missed runs come later after a time without workers: `skip` drops those over 5 minutes
    late, `latest` runs the last, `all` runs at most 100. Defaults to "latest"."""
    overlap: Overlap
    """What happens to a scheduled time while an earlier run is unfinished: `skip` drops it, `allow`
    runs both. Defaults to "skip"."""
    jitter: Duration | None
    """A duration up to a day over which the runs are spread, by a hash of name and time. Defaults
    to none."""


class CommandOptions(JobOptions, Timing, total=False):
    """The options of a command: of its job type, and of its schedule."""


TIMING_DEFAULTS: Timing = {
    "timezone": "UTC",
    "catch_up": "latest",
    "overlap": "skip",
    "jitter": None,
}


class ScheduleOptions(msgspec.Struct, frozen=True):
    """A schedule that is declared or put, checked."""

    name: str
    cron: str | None
    job_type: str
    payload_json: str
    payload_version: int | None
    enqueue: EnqueueOptions
    group_key: str | None
    """The ordered group of its jobs."""
    timezone: str
    catch_up: str
    overlap: str
    jitter_s: float | None
    place: CodePlace | None = None
    """The place of its declaration; None: it was put."""
    asks_json: str | None = None
    """What its jobs ask of a limit and a breaker."""

    def is_again(self, before: ScheduleOptions) -> bool:
        """Whether this is the declaration `before`, run once more."""
        here, there = self.place, before.place
        if self.name != before.name or here is None or there is None:
            return False
        return here.is_again(there)

    def make_row(self) -> dict[str, Any]:
        options = self.enqueue
        meta = add_asks(options.meta_json, self.asks_json)
        return {
            "name": self.name,
            "job_type": self.job_type,
            "payload": msgspec.Raw(self.payload_json.encode()),
            "payload_version": self.payload_version,
            "queue": options.queue,
            "priority": options.priority,
            "max_attempts": options.max_attempts,
            "expires": format_interval(options.expires_s),
            "meta": None if meta is None else msgspec.Raw(meta.encode()),
            "group_key": self.group_key,
            "cron": self.cron,
            "timezone": self.timezone,
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "jitter": format_interval(self.jitter_s),
        }


def check_schedule(
    name: Any, cron: Any, job: Any, timing: Timing, place: CodePlace | None = None
) -> ScheduleOptions:
    """Raises UsageError."""
    timezone, catch_up, overlap, jitter_s = check_timing(name, cron, timing)
    _check_job(job)
    return ScheduleOptions(
        name,
        cron,
        job.job_type.name,
        job.payload_json,
        job.job_type._declaration.options.version,
        job.options,
        job.group_key,
        timezone,
        catch_up,
        overlap,
        jitter_s,
        place,
        job.asks_json,
    )


def check_timing(name: Any, cron: Any, timing: Timing) -> tuple[str, str, str, float | None]:
    """Return zone, catch-up, overlap and jitter in seconds of a schedule. Raises UsageError."""
    if unknown := sorted(timing.keys() - TIMING_DEFAULTS.keys()):
        raise UsageError(
            f"there is no option {unknown[0]!r}; there are {', '.join(TIMING_DEFAULTS)}"
        )
    given: dict[str, Any] = {**TIMING_DEFAULTS, **timing}
    timezone, catch_up, overlap, jitter = given.values()
    check_text(name, "a schedule's name", NAME_MAX)
    if not isinstance(timezone, str):
        raise UsageError(
            f"timezone must be an IANA name such as 'Europe/Stockholm', not {timezone!r}"
        )
    if cron is not None and not isinstance(cron, str):
        raise UsageError(
            "cron must be a string such as '0 2 * * *', "
            f"or None for a schedule that runs only if triggered, not {cron!r}"
        )
    parse(MIDNIGHT if cron is None else cron, timezone)
    check_choice(catch_up, "catch_up", get_args(CatchUp))
    check_choice(overlap, "overlap", get_args(Overlap))
    jitter_s = None if jitter is None else seconds(jitter, name="jitter", most=JITTER_S_MAX)
    return timezone, catch_up, overlap, jitter_s


_CARRIED = ("priority", "queue", "max_attempts", "expires_s", "meta_json", "group_key")
"""The job options that a schedule keeps."""
_OF_THE_TIME = ("run_at", "delay_s", "idempotency_key", "on_duplicate", "connection")
"""The job options that each tick decides."""


def _check_job(job: Any) -> None:
    if isinstance(job, JobType):
        raise UsageError(f"give a job, not its type: {job.name}.new(…)")
    if not isinstance(job, NewJob):
        raise UsageError(f"job must be made with job_type.new(…), not {job!r}")
    refuse_taking(job)
    for name in job.options.__struct_fields__:
        if name in _CARRIED or getattr(job.options, name) is None:
            continue
        option = name.removeprefix("idempotency_").removesuffix("_s")
        if name in _OF_THE_TIME:
            raise UsageError(
                f"the job of a schedule takes no {option}: "
                "the schedule determines when it runs, and each scheduled time makes one job"
            )
        raise UsageError(f"the job of a schedule takes no {option}: give it to the job type")


def make_bare_job(job_type: Any, name: str) -> NewJob:
    """Return a job without arguments, of the type below the decorator. Raises UsageError."""
    if not isinstance(job_type, JobType):
        raise UsageError(
            f"write @….schedule({name!r}, …) above @….job(…), "
            "which turns the function into a job type"
        )
    try:
        return job_type.new()
    except PayloadError as error:
        raise UsageError(
            f"the decorator needs a job type without required arguments ({error}); "
            f"to give arguments: schedule({name!r}, …, {job_type.name}.new(…))"
        ) from None
