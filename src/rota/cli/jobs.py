"""`rota jobs`, `rota job` and `rota cancel`: what was asked for, what became of it, and calling it off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from rota.cli.output import job_facts, print_facts, print_json, print_table
from rota.cli.target import AppOption, JsonOption, SchemaOption, UrlOption, session
from rota.client.acting import refused
from rota.client.base import ID_MAX, LIST_MAX, reason
from rota.errors import JobNotFound
from rota.job import Job, Progress, Status
from rota.store import ops
from rota.store.ops import Attempt, Filter


def jobs(
    status: Annotated[Status | None, typer.Option(help="Only jobs that stand so.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only jobs of this type.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this queue.")] = None,
    idempotency_key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only the jobs with this idempotency key.")] = None,
    error_type: Annotated[str | None, typer.Option(metavar="CLASS", help="Only jobs whose last error was of this class.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=LIST_MAX, help="So many at most.")] = 20,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Only older ones: the next page.")] = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, live and over, the newest first."""
    wanted = Filter(
        status=status, job_type=job_type, queue=queue, idempotency_key=idempotency_key, error_type=error_type, before=before, limit=limit
    )
    with session(app, url, schema) as opened:
        found = opened.run(ops.find(wanted))
    if as_json:
        print_json({"jobs": [job_facts(job) for job in found]})
        return
    columns = ("id", "type", "queue", "status", "attempts", "run at", "finished at", "last error")
    rows = [
        (job.id, job.job_type, job.queue, job.status, _attempts(job), job.run_at, job.finished_at, _error(job.error_type, job.last_error))
        for job in found
    ]
    print_table(columns, rows, empty="no such jobs")


def job(
    id: Annotated[int, typer.Argument(metavar="ID", help="The job's id.", min=1, max=ID_MAX)],
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the whole story of a job: its row, its payload, and each attempt that did not succeed."""
    with session(app, url, schema) as opened:
        found = opened.run(ops.find(Filter(ids=[id])))
        if not found:
            raise JobNotFound(id)
        attempts = opened.run(ops.attempts(id))
    if as_json:
        print_json({"job": job_facts(found[0]), "attempts": [msgspec.structs.asdict(attempt) for attempt in attempts]})
        return
    print_facts(_facts(found[0]))
    if attempts:
        typer.echo("\nAttempts that did not succeed")
        columns = ("attempt", "claim", "worker", "release", "started at", "finished at", "then", "next run at", "verdict", "error")
        print_table(columns, map(_attempt, attempts), empty="")
        if stack := attempts[-1].stack:
            typer.echo(f"\nStack of the last one\n{stack.rstrip()}")


def cancel(
    ids: Annotated[list[int], typer.Argument(metavar="ID...", help="The jobs' ids.", min=1, max=ID_MAX)],
    why: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, kept with the jobs.")] = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call jobs off: one that waits is over at once, the worker of a running one is told to stop it. Dead ones and those that are over are refused."""
    with session(app, url, schema) as opened:
        answers = opened.run(ops.cancel(ids, reason(why)))
    refusals = [error for error in map(refused, answers) if error is not None]
    if len(refusals) < len(answers):
        if as_json:
            print_json({"jobs": [{"id": one.job, "answer": one.answer, "status": one.status} for one in answers]})
        else:
            print_table(("id", "answer", "status"), [(one.job, one.answer, one.status) for one in answers], empty="")
    if refusals:
        raise refusals[0]


def _facts(job: Job) -> Iterator[tuple[str, Any]]:
    yield "job", f"{job.id} {job.job_type}"
    yield "status", job.status.value
    if job.origin_id != job.id:
        yield "origin", job.origin_id
    yield "queue", f"{job.queue}, priority {job.priority}"
    yield "payload", job.payload_json
    yield "payload version", job.payload_version
    yield "meta", job.meta_json
    yield "idempotency key", job.idempotency_key
    yield "attempts", _attempts(job)
    yield "losses", job.losses or None
    yield "claims", job.claims
    for name in ("created_at", "run_at", "expires_at", "started_at", "failed_at", "finished_at"):
        yield name.replace("_", " "), getattr(job, name)
    yield "progress", _progress(job.progress)
    yield "cancel requested at", job.cancel_requested_at
    yield "cancel reason", job.cancel_reason
    yield "worker", job.locked_by
    yield "locked until", job.locked_until
    yield "release", job.release
    yield "result", job.result_json
    yield "last error", _error(job.error_type, job.last_error)
    yield "response code", job.response_code
    yield "verdict", _verdict(job.verdict, job.verdict_rule)


def _attempt(attempt: Attempt) -> tuple[Any, ...]:
    return (
        attempt.attempt,
        attempt.claim,
        attempt.worker,
        attempt.release,
        attempt.started_at,
        attempt.finished_at,
        attempt.outcome,
        attempt.next_run_at,
        _verdict(attempt.verdict, attempt.verdict_rule),
        _error(attempt.error_type, attempt.message),
    )


def _attempts(job: Job) -> str:
    return f"{job.attempts} of {job.max_attempts}"


def _progress(progress: Progress | None) -> str | None:
    if progress is None:
        return None
    done = f"{progress.done:,g}" if progress.total is None else f"{progress.done:,g} of {progress.total:,g}"
    at = progress.at.astimezone().isoformat(sep=" ", timespec="seconds")
    return f"{done} at {at}" if progress.note is None else f"{done} at {at}: {progress.note}"


def _error(error_type: str | None, message: str | None) -> str | None:
    return message if error_type is None else f"{error_type}: {message}"


def _verdict(verdict: str | None, rule: str | None) -> str | None:
    return None if verdict is None else f"{verdict} ({rule})"
