"""`rota pause` and `rota resume`: a queue, everything, or a restored copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.output import cell, print_json
from rota.cli.target import (
    AppOption,
    ByOption,
    JsonOption,
    SchemaOption,
    UrlOption,
    WhyOption,
    session,
)
from rota.client.base import check_by, check_why
from rota.client.queues import parse_until
from rota.errors import UsageError
from rota.model.bounds import check_queue
from rota.store import ops
from rota.store.ops import Pause

if TYPE_CHECKING:
    from rota.store.driver import Operation

QueueArgument = Annotated[str | None, typer.Argument(metavar="QUEUE", help="The queue's name.")]


def pause(
    queue: QueueArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything: no claims, no schedules.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Resume by itself: after a duration (2h) or at an instant (2026-11-21T18:00+01:00).",
        ),
    ] = None,
    why: WhyOption = None,
    by: ByOption = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let nothing more of a queue be claimed, or nothing at all. What runs goes on; enqueueing goes on."""
    _refuse_unclear(queue=queue is not None, all=everything)
    when, reason, actor = parse_until(until), check_why(why), check_by(by)
    with session(app, url, schema) as opened:
        if queue is None:
            paused = opened.run(ops.pause_all(when, reason, actor))
        else:
            paused = opened.run(
                ops.pause_queue(check_queue(queue, "a queue's name"), when, reason, actor)
            )
    print_json({"paused": paused}) if as_json else typer.echo(f"{what(paused)}: {in_words(paused)}")


def resume(
    queue: QueueArgument = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="End a pause of everything; queues paused by name stay so."),
    ] = False,
    copy: Annotated[
        bool,
        typer.Option(
            "--copy", help="Let this restored copy of a database do the work of its jobs."
        ),
    ] = False,
    why: WhyOption = None,
    by: ByOption = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let work go on. What was not paused is left as it is, and that is reason."""
    _refuse_unclear(queue=queue is not None, all=everything, copy=copy)
    reason, actor = check_why(why), check_by(by)
    if copy:
        name, resuming = "this copy", ops.resume_copy(reason, actor)
    elif queue is None:
        name, resuming = "everything", ops.resume_all(reason, actor)
    else:
        name, resuming = (
            f"queue {cell(queue).plain}",
            ops.resume_queue(check_queue(queue, "a queue's name"), reason, actor),
        )
    with session(app, url, schema) as opened:
        resumed, left = opened.run(_resume_and_list(resuming), atomic=True)
    if as_json:
        print_json({"resumed": resumed, "still_paused": left})
        return
    unchanged = "is no restored copy: its stamp is right" if copy else "was not paused"
    typer.echo(f"{name} {'resumed' if resumed else unchanged}")
    for one in left:
        typer.echo(f"still paused: {what(one)}: {in_words(one)}")


def _resume_and_list(resuming: Operation[bool]) -> Operation[tuple[bool, list[Pause]]]:
    """Whether anything was, and what is paused still."""
    return (yield from resuming), (yield from ops.pauses())


def what(paused: Pause) -> str:
    """What is paused, to read."""
    return "everything" if paused.queue is None else f"queue {cell(paused.queue).plain}"


def in_words(paused: Pause) -> str:
    """Since when, until when, by whom and why."""
    until = (
        "until it is resumed"
        if paused.paused_until is None
        else f"until {cell(paused.paused_until).plain}"
    )
    why = "" if paused.paused_why is None else f": {cell(paused.paused_why).plain}"
    return f"paused since {cell(paused.paused_at).plain} {until} by {cell(paused.paused_by).plain}{why}"


def _refuse_unclear(**given: bool) -> None:
    if sum(given.values()) != 1:
        options = " or ".join(f"--{name}" for name in given if name != "queue")
        raise UsageError(f"give either a queue or {options}")
