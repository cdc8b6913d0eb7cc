"""What code, the API and the command line say of a schedule, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from rota.declare.job_type import JobType, NewJob
from rota.declare.options import Chosen
from rota.errors import PayloadError, UsageError
from rota.model.bounds import NAME_MAX, check_choice, check_text
from rota.model.cron import parse
from rota.model.schedule import JITTER_S_MAX, MIDNIGHT, CatchUp, Overlap
from rota.model.units import seconds


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule that is declared or put, checked."""

    name: str
    cron: str | None
    job_type: str
    payload_json: str
    payload_version: int | None
    chosen: Chosen
    timezone: str
    catch_up: str
    overlap: str
    jitter_s: float | None
    place: str = ""
    """Where it is written, as file:line."""

    def row(self) -> dict[str, Any]:
        """What its row says."""
        chosen = self.chosen
        return {
            "name": self.name,
            "job_type": self.job_type,
            "payload": msgspec.Raw(self.payload_json.encode()),
            "payload_version": self.payload_version,
            "queue": chosen.queue,
            "priority": chosen.priority,
            "max_attempts": chosen.max_attempts,
            "expires_s": chosen.expires_s,
            "meta": None if chosen.meta_json is None else msgspec.Raw(chosen.meta_json.encode()),
            "cron": self.cron,
            "timezone": self.timezone,
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "jitter_s": self.jitter_s,
        }


def defined(
    name: Any,
    cron: Any,
    job: Any,
    *,
    timezone: Any,
    catch_up: Any,
    overlap: Any,
    jitter: Any,
    place: str = "",
) -> Definition:
    """Check what is said of a schedule. Raises UsageError."""
    jitter_s = check_options(
        name, cron, timezone=timezone, catch_up=catch_up, overlap=overlap, jitter=jitter
    )
    _check_job(job)
    kind = job.job_type
    return Definition(
        name,
        cron,
        kind.name,
        job.payload_json,
        kind.settings.version,
        job.chosen,
        timezone,
        catch_up,
        overlap,
        jitter_s,
        place,
    )


def check_options(
    name: Any,
    cron: Any,
    *,
    timezone: Any,
    catch_up: Any,
    overlap: Any,
    jitter: Any,
    place: str = "",
) -> float | None:
    """Check all but the job; return the jitter in seconds. Raises UsageError."""
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
    return None if jitter is None else seconds(jitter, name="jitter", most=JITTER_S_MAX)


def _check_job(job: Any) -> None:
    if isinstance(job, JobType):
        raise UsageError(f"give a job, not its type: {job.name}.new(…)")
    if not isinstance(job, NewJob):
        raise UsageError(f"job must be made with job_type.new(…), not {job!r}")
    chosen = job.chosen
    for option, value in {
        "run_at": chosen.run_at,
        "delay": chosen.delay_s,
        "idempotency_key": chosen.idempotency_key,
        "connection": chosen.connection,
    }.items():
        if value is not None:
            raise UsageError(
                f"the job of a schedule takes no {option}: "
                "the tick determines when it runs, and each tick makes one job"
            )


def without_arguments(job_type: Any, name: str) -> NewJob:
    """The job of a type that the decorator stands above. Raises UsageError."""
    if not isinstance(job_type, JobType):
        raise UsageError(
            f"write @….schedule({name!r}, …) above @….job(…), which turns the function into "
            "a job type"
        )
    try:
        return job_type.new()
    except PayloadError as error:
        raise UsageError(
            f"the decorator needs a job type without required arguments ({error}); "
            f"to give arguments: schedule({name!r}, …, {job_type.name}.new(…))"
        ) from None
