"""`rota jobs` lists jobs; `rota job` shows one job and its timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

import msgspec
import typer
from rich.text import Text

from rota.cli.flags import argument, flag, option
from rota.cli.listing import Field, Listing, add_one, label, show_error, show_status, spare
from rota.cli.output import (
    Times,
    clean,
    print_facts,
    print_json,
    print_lines,
    print_text,
)
from rota.cli.table import Kind
from rota.cli.target import Reason, Viewer
from rota.client.base import ID_MAX, LIST_MAX, parse_moment
from rota.client.find import check_search
from rota.client.session import Session
from rota.client.timeline import Timeline, describe_resolution, fold
from rota.errors import SchemaError, UsageError
from rota.model.job import Job, Progress, Status
from rota.model.units import words
from rota.store.columns import JOB_TYPE

TIME = "TIME is a local time (2026-01-14T09:30) or an age (2h)"
PART = "NAME=VALUE"
PART_HELP = "VALUE is JSON, otherwise a text. Repeatable; all must match."


@dataclass(frozen=True, slots=True)
class Sought:
    """The options that select the listed jobs."""

    status: Status | None = option(
        "--status STATUS", f"Only jobs with this status: {', '.join(Status)}."
    )
    job_type: str | None = option("--type NAME", "Only jobs of this type.")
    queue: str | None = option("--queue NAME", "Only jobs in this queue.")
    key: str | None = option("--key KEY", "Only jobs with this idempotency key.")
    group_key: str | None = option("--group-key KEY", "Only jobs of this ordered group.")
    payload: list[str] | None = option(
        f"--payload {PART}", f"Only jobs with this argument. {PART_HELP}"
    )
    meta: list[str] | None = option(
        f"--meta {PART}", "Only jobs with this in their meta, as --payload."
    )
    waiting: bool = flag(
        "--waiting",
        "Only jobs that wait for a group, a limit, a breaker or other jobs, and for which. Not "
        "those of a pause: see rota queues.",
    )
    batch: int | None = option("--batch ID", "Only members of this batch, of any age.", min=1)
    error_type: str | None = option(
        "--error-type CLASS", "Only jobs with an error of this class, in any attempt in the period."
    )
    error: str | None = option(
        "--error TEXT",
        "Only jobs with this text in an error message, in any attempt in the period; an "
        "ellipsis in it stands for any text. Case is ignored.",
    )
    since: str | None = option(
        "--since TIME",
        "Start of the period in which a job finished or died. Waiting and running jobs "
        f"are not affected. {TIME}. Default: 1d for finished jobs, no limit for dead jobs.",
    )
    until: str | None = option(
        "--until TIME",
        "End of that period. A time in the past excludes waiting and running jobs. Default: now.",
    )
    limit: int = option("--limit", "Maximum number of jobs.", default=20, min=1, max=LIST_MAX)
    before: int | None = option("--before ID", "Only jobs with a smaller id: for the next page.")


def jobs(*, sought: Sought, viewer: Viewer) -> None:
    """List jobs, the newest first.

    Lists finished jobs of the last 24 h only; --since changes that.
    """
    search: Any = read_filters(sought) | {"until": read_moment(sought.until, "--until")}
    check_search(search)  # before it connects
    search["limit"] = add_one(sought.limit)

    def find(opened: Session) -> list[Any]:
        found = opened.explain(opened.find(**search))
        if not found and sought.job_type is not None:
            _tell_undeclared(opened, sought.job_type)
        return found

    JOBS.show(viewer, find, limit=sought.limit)
    if not viewer.as_json and is_of_day(search):
        typer.echo("finished jobs: last 24 h; for more: --since 14d", err=True)


def _tell_undeclared(opened: Session, job_type: str) -> None:
    """Tell of a type that no release has declared: the name may be mistyped."""
    try:
        with opened.connection.transaction():
            declared = opened.read_table("job_types", columns=JOB_TYPE)
    except SchemaError:
        return  # the role reads the view only
    names = [name for row in declared for name in (row["name"], *row["aliases"])]
    if job_type not in names:
        nearest = get_close_matches(job_type, names, 1)
        meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
        typer.echo(f"no job type {job_type!r} is declared{meant}", err=True)


def is_of_day(search: Mapping[str, Any]) -> bool:
    """Whether a search looks for finished jobs, but only for those of the last 24 h."""
    status = search.get("status")
    has_finished = (status is None or Status(status).is_over) and not search.get("waiting")
    return has_finished and all(search.get(name) is None for name in ("since", "until", "batch"))


def _status(job: Job, times: Times) -> str:
    """Return the status; for a dead job that needs nobody's attention, also why."""
    resolution: Any = job.resolution
    if not isinstance(resolution, dict):
        return show_status(job.status, _when(job), times)
    retried = resolution.get("requeued_as")
    return f"{job.status}, {f'retried as {retried}' if retried else 'archived'}"


def _when(job: Job) -> datetime | None:
    match job.status:
        case Status.RUNNING:
            return job.started_at
        case Status.DEAD:
            return job.failed_at
    return job.finished_at or job.run_at


def read_filters(options: Any) -> dict[str, Any]:
    """Read the options that select jobs, as the client takes them. Raises UsageError."""
    return asdict(options) | {
        "payload": read_part(options.payload, "--payload"),
        "meta": read_part(options.meta, "--meta"),
        "since": read_moment(options.since, "--since"),
    }


def read_moment(text: str | None, name: str) -> datetime | timedelta | None:
    """Read a time, local without a UTC offset, or an age. Raises UsageError."""
    try:
        if text is not None and text[:4].isdigit() and "-" in text:
            return datetime.fromisoformat(text).astimezone()
        return parse_moment(text, name)
    except (ValueError, OverflowError, UsageError):
        raise UsageError(
            f"{name} must be a time such as 2026-01-14T09:30 or an age such as 2h, not {text!r}"
        ) from None


def read_part(given: list[str] | None, name: str) -> dict[str, Any] | None:
    """Read parts of a payload or a meta: NAME=VALUE, each value JSON or text. Raises UsageError."""
    part: dict[str, Any] = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not sign or key in part:
            raise UsageError(f"{name} must be {PART}, each name once, not {text!r}")
        try:
            part[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            part[key] = value
    return part or None


def job(
    id: int = argument("ID", "Job id.", min=1, max=ID_MAX),
    verbose: bool = flag(
        "--verbose", "Also show ids, claims, times, all effects, the stack trace."
    ),
    reveal: bool = flag(
        "--reveal", "Show secret and personal values. Needs --why, which is recorded."
    ),
    *,
    reason: Reason,
    viewer: Viewer,
) -> None:
    """Show a job: its timeline, then its payload and what it is now.

    The timeline includes the jobs as which it was retried, and that it is a retry of.
    """
    if not reveal and (reason.why or reason.by):
        raise UsageError("--why and --by are for --reveal, which is recorded")
    with viewer.session() as opened:
        payload = opened.jobs.reveal(id, why=reason.why or "", by=reason.by) if reveal else None
        timeline = opened.jobs.timeline(id)
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json(timeline if payload is None else _show_revealed(timeline, payload))
        return
    found = timeline.job
    print_text(f"job {found.id} {found.job_type}: {_status(found, times)}")
    typer.echo("")
    entries = timeline.entries if verbose else fold(timeline.entries)
    (TIMELINE if len(timeline.chain) > 1 else TIMELINE_OF_ONE).print(entries, times)
    typer.echo("")
    facts = [
        (name, payload if name == "payload" and payload is not None else value)
        for name, value in list_facts(found, times, verbose=verbose)
    ]
    print_facts(facts, times)
    if timeline.attempts and (stack := timeline.attempts[-1].stack):
        if verbose:
            typer.echo("\nStack trace of the last failed attempt")
            print_lines(map(Text, clean(stack.rstrip()).split("\n")))
        else:
            typer.echo(f"\nthe stack trace: rota job {id} --verbose", err=True)


def _show_revealed(timeline: Timeline, payload: dict[str, Any]) -> dict[str, Any]:
    facts = timeline.facts(msgspec.json.decode)
    return {**facts, "job": {**facts["job"], "payload": payload}}


def list_facts(job: Job, times: Times, *, verbose: bool) -> Iterator[tuple[str, Any]]:
    yield "queue", f"{job.queue}, priority {job.priority}"
    yield "payload", job.shown_payload
    yield "meta", job.meta_json
    yield "key", job.idempotency_key
    yield "group key", job.group_key
    yield "batch", job.batch
    yield "attempts", _attempts(job)
    yield "timeout", None if job.timeout_s is None else words(job.timeout_s)
    yield "expires at", job.expires_at
    yield "progress", _progress(job.progress, times)
    yield "cancel requested at", job.cancel_requested_at
    yield "cancel reason", job.cancel_reason
    yield "worker", job.locked_by
    yield "result", job.result_json
    yield "last error", show_error(job)
    yield "archived", describe_resolution(job)
    if verbose:
        yield "origin", None if job.origin_id == job.id else job.origin_id
        yield "payload version", job.payload_version
        yield "group capacity", job.group_capacity if job.group_capacity > 1 else None
        yield "losses", job.losses or None
        yield "claims", job.claims
        for name in ("created_at", "run_at", "started_at", "failed_at", "finished_at"):
            yield name.replace("_", " "), getattr(job, name)
        yield "locked until", job.locked_until
        yield "release", job.release
        yield "response code", job.response_code
        yield "verdict", None if job.verdict is None else f"{job.verdict} ({job.verdict_rule})"


def _attempts(job: Job) -> str:
    return f"{job.attempts} of {job.max_attempts}"


def _progress(progress: Progress | None, times: Times) -> str | None:
    if progress is None:
        return None
    done = (
        f"{progress.done:,g}"
        if progress.total is None
        else f"{progress.done:,g} of {progress.total:,g}"
    )
    at = times.show(progress.at)
    return f"{done}, {at}" if progress.note is None else f"{done}, {at}: {progress.note}"


def _explain(job: Job) -> str | None:
    if job.wait is not None:
        return f"{job.wait.what} {job.wait.text}"
    return show_error(job)


JOBS = Listing(
    "jobs",
    (
        "id",
        Field("type", "job_type", Kind.TYPE),
        spare(label("queue")),
        Field("status", _status),
        spare(Field("attempts", lambda job, _: _attempts(job))),
        Field("last error or wait", lambda job, _: _explain(job), Kind.ERROR),
    ),
    empty="no jobs found",
    page=("--before", "id"),
)
TIMELINE = Listing("timeline", (Field("when", "at"), "job", "what", Field("", "text", Kind.TEXT)))
TIMELINE_OF_ONE = replace(TIMELINE, fields=[field for field in TIMELINE.fields if field != "job"])
