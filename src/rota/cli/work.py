"""`rota work`: a worker, until it is told to stop or nothing is due."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from rota.app import App
from rota.cli.output import print_json
from rota.cli.target import AppOption, JsonOption, connected, need_app
from rota.config import SLOTS
from rota.errors import UsageError
from rota.store import migrate
from rota.worker.worker import Report


class Level(StrEnum):
    """How much of what happens is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def work(
    app: AppOption = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SLOTS", help="A queue and its own slots; repeat it. Defaults to all queues of the App's types and default."
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help=f"Jobs at once over all queues, without --queue. Defaults to {SLOTS}.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Stop when nothing is due; print what was done.")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="With --drain: claim nothing more after so long.")] = None,
    grace: Annotated[str, typer.Option(metavar="DURATION", help="How long running jobs may go on after SIGTERM or SIGINT.")] = "30s",
    log_level: Annotated[Level, typer.Option(help="What to log on stderr; one line per step of a job is info.")] = Level.INFO,
    as_json: JsonOption = False,
) -> None:
    """Run jobs until SIGTERM or SIGINT: then finish what runs, hand the rest back, and exit 0, also when jobs failed."""
    if queue and slots is not None:
        raise UsageError("--slots is shared by all queues, and --queue gives each its own: give one of them")
    if for_ is not None and not drain:
        raise UsageError("--for ends a drain: give --drain as well")
    queues = _queues(queue) if queue else None
    chosen = need_app(app)
    set_up_logging(log_level)
    _refuse_unfit(chosen)
    shared = SLOTS if slots is None else slots
    if drain:
        report = chosen.drain(queues=queues, slots=shared, for_=for_, grace=grace, signals=True)
    else:
        report = chosen.run(queues=queues, slots=shared, grace=grace)
    _say(report, drain=drain, as_json=as_json)


def _queues(given: list[str]) -> dict[str, int]:
    queues: dict[str, int] = {}
    for text in given:
        name, _, slots = text.rpartition("=")
        if not name or not slots.isdecimal():
            raise UsageError(f"--queue takes name=slots, as in email=20, not {text!r}")
        if name in queues:
            raise UsageError(f"--queue names {name!r} twice")
        queues[name] = int(slots)
    return queues


def set_up_logging(level: Level) -> None:
    """Log to stderr, unless the App's module has set up logging of its own."""
    form = "%(asctime)s %(levelname)-7s %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=form)
    logging.getLogger("rota").setLevel(level.value.upper())


def _refuse_unfit(app: App) -> None:
    """Say at once what would keep the worker from working."""
    with connected(app.database) as opened:
        opened.run(migrate.check(app.schema))


def _say(report: Report, *, drain: bool, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(report))
    elif drain:
        typer.echo(report.line())
