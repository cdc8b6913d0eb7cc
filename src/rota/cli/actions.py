"""`rota retry`, `bury`, `cancel`, `requeue`, `ignore` and `run-again`: what people do to jobs, by their ids or by a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Any

import typer

from rota.cli.enqueue import arguments
from rota.cli.jobs import TIME, read_moment
from rota.cli.output import print_json, print_table
from rota.cli.target import (
    AppOption,
    ByOption,
    JsonOption,
    SchemaOption,
    Session,
    UrlOption,
    WhyOption,
    find_app,
    session,
)
from rota.client.actions import (
    MANY,
    MANY_MAX,
    correct_payload,
    index_by_name,
    select_jobs,
    sort_errors,
)
from rota.client.base import ID_MAX, check_by, check_why
from rota.errors import PayloadError, UsageError
from rota.model.job import Action, Status
from rota.store import ops
from rota.store.ops import ActionRequest, Answer, Which

SHOWN_MAX = 20
"""More rows than a screen has are only counted."""
_PAST = {
    Action.RETRY_NOW: "retried",
    Action.CANCEL: "cancelled",
    Action.BURY: "buried",
    Action.REQUEUE: "requeued",
    Action.IGNORE: "ignored",
    Action.RUN_AGAIN: "run again",
}
_HELP = {
    Action.RETRY_NOW: "Make jobs due now; a running one is taken from its worker. A filter means failed ones, unless --status says otherwise.",
    Action.CANCEL: "Cancel jobs: one that waits is over at once, the worker of a running one is told to stop it. Dead ones and those that are over are"
    " refused.",
    Action.BURY: "Give jobs up: they are dead. A running one is taken from its worker. A filter means those that wait, unless --status says otherwise.",
    Action.IGNORE: "Put dead jobs away. --why is required. Their idempotency keys are free.",
    Action.RUN_AGAIN: "Run jobs once more that are over or dead, as new jobs without keys. A filter needs --status, and --since for those that are over.",
}

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", help="The jobs' ids; else a filter.", min=1, max=ID_MAX),
]
TypeOption = Annotated[
    str | None, typer.Option("--type", metavar="NAME", help="Filter: jobs of this type.")
]
QueueOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Filter: jobs in this queue.")
]
ErrorOption = Annotated[
    str | None,
    typer.Option(
        "--error-type",
        "--error",
        metavar="CLASS",
        help="Filter: jobs whose last error was of this class.",
    ),
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Filter: jobs whose last attempt this release made."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help=f"Filter: jobs that failed or ended from then on, else were made; {TIME}.",
    ),
]
StatusOption = Annotated[
    Status | None,
    typer.Option(
        metavar="STATUS",
        help=f"Filter: jobs that stand so, where an action has several to choose from: {', '.join(Status)}.",
    ),
]
LimitOption = Annotated[
    int, typer.Option(min=1, max=MANY_MAX, help="With a filter: so many at most, the oldest first.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="With a filter: do not ask.")]


@dataclass(frozen=True)
class Given:
    """What a command was given."""

    ids: list[int] | None
    filters: dict[str, Any]
    yes: bool
    as_json: bool


def command(action: Action) -> Callable[..., None]:
    """The command of an action that needs to know no more than which jobs, who and why."""

    def do(
        ids: Ids = None,
        job_type: TypeOption = None,
        queue: QueueOption = None,
        error: ErrorOption = None,
        release: ReleaseOption = None,
        since: SinceOption = None,
        status: StatusOption = None,
        limit: LimitOption = MANY,
        yes: YesOption = False,
        why: WhyOption = None,
        by: ByOption = None,
        app: AppOption = None,
        url: UrlOption = None,
        schema: SchemaOption = None,
        as_json: JsonOption = False,
    ) -> None:
        given = Given(
            ids, _filters(job_type, queue, error, release, since, status, limit), yes, as_json
        )
        _do(_make_request(action, why, by), given, app, url, schema)

    do.__doc__ = _HELP[action]
    return do


def requeue(
    ids: Ids = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Of one job: the corrected arguments, as a JSON object."),
    ] = None,
    job_type: TypeOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    release: ReleaseOption = None,
    since: SinceOption = None,
    limit: LimitOption = MANY,
    yes: YesOption = False,
    why: WhyOption = None,
    by: ByOption = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try dead jobs again as new ones, which take their keys along; the dead ones go to history."""
    given = Given(ids, _filters(job_type, queue, error, release, since, None, limit), yes, as_json)
    if payload is not None and len(ids or ()) != 1:
        raise UsageError("--payload corrects one job: give its id")
    _do(_make_request(Action.REQUEUE, why, by), given, app, url, schema, payload)


def _make_request(action: Action, why: str | None, by: str | None) -> ActionRequest:
    reason = check_why(why)
    if action is Action.IGNORE and reason is None:
        raise UsageError("--why: say why; the reason is what stays of the decision")
    return ActionRequest(action, check_by(by), reason)


def _filters(
    job_type: str | None,
    queue: str | None,
    error: str | None,
    release: str | None,
    since: str | None,
    status: Status | None,
    limit: int,
) -> dict[str, Any]:
    filters = {
        "job_type": job_type,
        "queue": queue,
        "error_type": error,
        "release": release,
        "since": read_moment(since, "--since"),
        "status": status,
    }
    return {name: value for name, value in filters.items() if value is not None} | (
        {"limit": limit} if limit != MANY else {}
    )


def _do(
    request: ActionRequest,
    given: Given,
    app: str | None,
    url: str | None,
    schema: str | None,
    payload: str | None = None,
) -> None:
    if given.ids and given.filters:
        raise UsageError("give ids or a filter, not both")
    which = None if given.ids else select_jobs(request.action, **given.filters)
    if which is not None and not given.yes and not sys.stdin.isatty():
        raise UsageError(
            f"{request.action.value} by a filter asks before it acts, and there is no terminal: add --yes"
        )
    with session(app, url, schema) as opened:
        if payload is not None and given.ids:
            request = _correct_payload(opened, request, given.ids[0], payload, app)
        ids = given.ids or []
        if which is not None:
            ids = _confirm(opened, request, which, given)
        answers, refusals = opened.run(ops.act_on_many(request, ids))
    _say(request.action, answers, refusals, given)


def _correct_payload(
    opened: Session, request: ActionRequest, id: int, payload: str, app: str | None
) -> ActionRequest:
    owner = find_app(app)
    types = index_by_name(owner.types) if owner is not None else {}
    return opened.run(correct_payload(request, id, _payload(id, payload), types.get))


def _payload(id: int, text: str) -> dict[str, Any]:
    try:
        return arguments("", text)
    except PayloadError as error:
        raise UsageError(f"--payload for job {id}: {error.reason}") from None


def _confirm(opened: Session, request: ActionRequest, which: Which, given: Given) -> list[int]:
    """The jobs that a filter finds, once whoever asked has seen how many they are and said yes."""
    ids = opened.run(ops.choose(which))
    more = " (as many as --limit allows; there may be more)" if len(ids) == which.limit else ""
    typer.echo(
        f"{len(ids):,} {'job' if len(ids) == 1 else 'jobs'} to be {_PAST[request.action]}{more}",
        err=True,
    )
    if ids and not given.yes:
        typer.confirm("Go on?", abort=True, err=True)
    return ids


def _say(action: Action, answers: list[Answer], refusals: dict[int, str], given: Given) -> None:
    errors = sort_errors(action, answers, refusals)
    done = len(answers) + len(refusals) - len(errors)
    makes = action in (Action.REQUEUE, Action.RUN_AGAIN)
    facts = [_facts(answer, makes) for answer in answers] + [
        {"id": job, "answer": "database refuses", "status": None} for job in refusals
    ]
    facts.sort(key=itemgetter("id"))
    tells = len(facts) > 1 or not errors  # of one job the error says it all
    if given.as_json and tells:
        print_json({"jobs": facts})
    elif tells:
        if len(facts) <= SHOWN_MAX:
            columns = ("id", "answer", "status", *(["new id"] if makes else []))
            print_table(columns, [(*one.values(), None)[: len(columns)] for one in facts], empty="")
        else:
            typer.echo(f"{done:,} {_PAST[action]}, {len(errors):,} refused")
            for error in list(errors.values())[:SHOWN_MAX]:
                typer.echo(f"  {error}")
    if errors:
        raise next(iter(errors.values()))


def _facts(answer: Answer, makes: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"id": answer.job, "answer": answer.answer, "status": answer.status}
    return facts | ({"new_id": answer.new_id} if makes else {})
