"""`rota retry`, `cancel`, `reschedule`, `discard` and `archive`, by ids or by a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Any, cast

import typer

from rota.cli.enqueue import instant, read_object
from rota.cli.flags import flag, option
from rota.cli.jobs import PART, PART_HELP, TIME, read_filters
from rota.cli.listing import Field, Listing, show_status
from rota.cli.output import print_json
from rota.cli.target import Actor, find_app
from rota.client.base import ID_MAX
from rota.client.requests import (
    ActionRequest,
    Answer,
    act_on_key,
    check_moved,
    correct_payload,
    make_request,
    make_retry,
    sort_errors,
)
from rota.client.selection import MANY, MANY_MAX, ActionFilters, find_jobs, select_jobs
from rota.client.session import Session
from rota.errors import UsageError
from rota.model.job import Action
from rota.model.states import takes
from rota.model.units import plural

SHOWN_MAX = 20
"""Most rows that are printed; beyond it only counts, as more do not fit on a screen."""
_MAKES = (Action.RETRY, Action.REQUEUE, Action.RUN_AGAIN)
"""Actions of a retry, which may make new jobs."""
_PAST = {
    Action.RETRY: "retried",
    Action.RESCHEDULE: "rescheduled",
    Action.CANCEL: "cancelled",
    Action.DISCARD: "discarded",
    Action.REQUEUE: "retried",
    Action.ARCHIVE: "archived",
    Action.RUN_AGAIN: "run again",
}
_BY_KEY = (Action.CANCEL, Action.RESCHEDULE)
"""Actions that take a key, or a key and a type, for the job that holds this key."""
_HELP = {
    Action.CANCEL: """Cancel unfinished jobs.

    A job that is not running ends at once; a running job is stopped by its worker. Dead and
    finished jobs are refused.
    """,
    Action.DISCARD: """Make unfinished jobs dead: they are not tried again.

    They keep their keys, but those with the scope "live" or "pending" are released. A running job
    loses its lease; its worker stops the handler. A filter selects queued, waiting and failed jobs,
    unless --status is given.
    """,
    Action.ARCHIVE: """Archive dead jobs without another attempt, with a reason (--why).

    Their idempotency keys are released.
    """,
}

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", help="Job ids. Without ids, give a filter.", min=1, max=ID_MAX),
]


@dataclass(frozen=True, slots=True)
class Filters:
    """The options of a command that acts on the jobs of a filter."""

    job_type: str | None = option("--type NAME", "Filter: jobs of this type.")
    queue: str | None = option("--queue NAME", "Filter: jobs in this queue.")
    key: str | None = option(
        "--key KEY",
        "Filter: jobs with this key. cancel and reschedule take it, and --type if jobs of "
        "several types hold it, for the job that holds it, without a question.",
    )
    group_key: str | None = option("--group-key KEY", "Filter: jobs of this ordered group.")
    payload: list[str] | None = option(
        f"--payload {PART}", f"Filter: jobs with this argument. {PART_HELP}"
    )
    meta: list[str] | None = option(
        f"--meta {PART}", "Filter: jobs with this in their meta, as --payload."
    )
    error_type: str | None = option(
        "--error-type CLASS", "Filter: jobs whose last error has this class."
    )
    error: str | None = option(
        "--error TEXT",
        "Filter: jobs with this text in their last error; an ellipsis in it stands for any text.",
    )
    release: str | None = option(
        "--release TEXT", "Filter: jobs last attempted by this release of your code."
    )
    since: str | None = option(
        "--since TIME",
        "Filter: jobs whose last failure or end is after TIME; for jobs without one, the "
        f"creation counts. {TIME}.",
    )
    limit: int = option(
        "--limit",
        "With a filter: maximum number of jobs, the oldest first.",
        default=MANY,
        min=1,
        max=MANY_MAX,
    )
    yes: bool = flag("--yes", "With a filter: do not ask for confirmation.")

    def read(self, status: str | None) -> dict[str, Any]:
        """Return the given options as the client takes them. Raises UsageError."""
        found = read_filters(self) | {
            "status": status,
            "limit": None if self.limit == MANY else self.limit,
            "yes": None,  # it selects nothing
        }
        return {name: value for name, value in found.items() if value is not None}


def _status(action: Action, more: str = "") -> Any:
    """Make the option `--status`. `select_jobs` checks it with the table of its help."""
    taken = ", ".join(takes(action))
    return option("--status STATUS", f"Filter: jobs with this status: {taken}{more}.")


def _command(action: Action) -> Callable[..., None]:
    """Make the command of an action whose only options are jobs, actor and reason."""

    def do(
        ids: Ids = None,
        *,
        status: str | None = _status(action),
        filters: Filters,
        actor: Actor,
    ) -> None:
        request = make_request(action, actor.by, actor.why, name_of_why="--why")
        _do(request, ids, filters, status, actor)

    do.__doc__ = _HELP[action]
    return do


cancel, discard, archive = map(_command, (Action.CANCEL, Action.DISCARD, Action.ARCHIVE))


def retry(
    ids: Ids = None,
    new_payload: str | None = option(
        "--new-payload JSON", "Of a dead job: corrected arguments as a JSON object; with one id."
    ),
    fresh: bool = flag("--fresh", "Of dead jobs: forget the finished steps, and start over."),
    again: bool = flag("--again", "Run finished jobs once more, as new jobs without keys."),
    *,
    status: str | None = _status(
        Action.RETRY,
        f"; with --again {', '.join(takes(Action.RUN_AGAIN))}. Default: failed and dead",
    ),
    filters: Filters,
    actor: Actor,
) -> None:
    """Run jobs now, each as fits its status.

    A failed job, or a job that waits for its time, is due now. A running job loses its lease; its
    worker stops the handler. A dead job runs again as a new job, which takes over its key and its
    finished steps; the dead job is archived. With the scope "live" the new job takes the key again;
    if another job has it, the retry is refused.
    """
    if new_payload is not None and len(ids or ()) != 1:
        raise UsageError("--new-payload needs exactly one job id")
    corrected = new_payload is not None
    request = make_retry(actor.by, actor.why, again=again, fresh=fresh, corrected=corrected)
    _do(request, ids, filters, status, actor, new_payload)


def reschedule(
    ids: Ids = None,
    run_at: str | None = option(
        "--run-at TIME", "New earliest start, with UTC offset: 2026-11-20T08:00:00+01:00."
    ),
    delay: str | None = option(
        "--delay DURATION", "New earliest start, from now: 90s, 10m, 1h30m. Not with --run-at."
    ),
    priority: int | None = option("--priority NUMBER", "New priority, -100 to 100."),
    to_queue: str | None = option("--to-queue NAME", "New queue."),
    *,
    status: str | None = _status(Action.RESCHEDULE),
    filters: Filters,
    actor: Actor,
) -> None:
    """Move queued and failed jobs to another time, priority or queue.

    With the time their expiry moves. A job that is due goes to the end of its line.
    """
    names = "--run-at, --delay, --priority and --to-queue"
    moved = check_moved(instant(run_at), delay, priority, to_queue, names=names)
    request = make_request(Action.RESCHEDULE, actor.by, actor.why, moved)
    _do(request, ids, filters, status, actor)


def _do(
    request: ActionRequest,
    ids: list[int] | None,
    filters: Filters,
    status: str | None,
    actor: Actor,
    payload: str | None = None,
) -> None:
    action, named = request.action, filters.read(status)
    if ids and named:
        raise UsageError("give ids or a filter, not both")
    if action in _BY_KEY and filters.key is not None and named.keys() <= {"key", "job_type"}:
        with actor.session() as opened:
            answer = opened.run(act_on_key(request, filters.key, filters.job_type))
        _say(request, [answer], {}, actor)
        return
    if not ids:
        select_jobs(action, named)  # refuses what selects none
    if not (ids or filters.yes or sys.stdin.isatty()):
        command = "retry" if action in _MAKES else action.value
        raise UsageError(
            f"{command} with a filter asks for confirmation, but stdin is not a terminal: add --yes"
        )
    with actor.session() as opened:
        if payload is not None and ids:
            request = _correct_payload(opened, request, ids[0], payload, actor.app)
        if not ids:
            request, ids = opened.run(find_jobs(request, cast("ActionFilters", named)))
            _confirm(action, ids, filters)
        answers, refusals = opened.act(request, ids)
    _say(request, answers, refusals, actor)


def _correct_payload(
    opened: Session, request: ActionRequest, id: int, payload: str, app: str | None
) -> ActionRequest:
    owner = find_app(app)
    type_of = (lambda _: None) if owner is None else owner._type_of
    corrected = read_object(payload, f"--new-payload for job {id}")
    return opened.run(correct_payload(request, id, corrected, type_of))


def _confirm(action: Action, ids: list[int], filters: Filters) -> None:
    more = " (limited by --limit; there may be more)" if len(ids) == filters.limit else ""
    typer.echo(f"{plural(len(ids), 'job')} to be {_PAST[action]}{more}", err=True)
    if ids and not filters.yes:
        typer.confirm("Continue?", abort=True, err=True)


def _say(
    request: ActionRequest, answers: list[Answer], refusals: dict[int, str], actor: Actor
) -> None:
    errors = sort_errors(request.action, answers, refusals)
    done = len(answers) + len(refusals) - len(errors)
    rows = [
        {"id": answer.job, "answer": answer.answer, "status": answer.status} for answer in answers
    ]
    if request.action in _MAKES:
        rows = [row | {"new_id": answer.new_id} for row, answer in zip(rows, answers, strict=True)]
    rows += [{"id": job, "answer": "database refuses", "status": None} for job in refusals]
    rows.sort(key=itemgetter("id"))
    tells = len(rows) > 1 or not errors  # for a single refused job the error is enough
    if actor.as_json and tells:
        print_json({"jobs": rows})
    elif tells and len(rows) <= SHOWN_MAX:
        ANSWERS.print(rows)
    elif tells:
        typer.echo(f"{done:,} {_PAST[request.action]}, {len(errors):,} refused")
        for error in list(errors.values())[:SHOWN_MAX]:
            typer.echo(f"  {error}")
    if request.fresh and done and not actor.as_json:
        typer.echo("their finished steps are forgotten: they start over")
    if errors:
        raise next(iter(errors.values()))


ANSWERS = Listing(
    "jobs",
    (
        "id",
        "answer",
        Field("status", lambda row, times: show_status(row["status"], None, times)),
        Field("new id", lambda row, _: row.get("new_id")),
    ),
    empty="no jobs found",
)
