"""`rota work`: a worker, or several, until told to stop or nothing is due."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from rota.app import App
from rota.cli.output import print_json
from rota.cli.target import AppOption, JsonOption, connect, need_app
from rota.declare.config import HEALTH_PORT_MAX, PROCESSES_MAX, SLOTS
from rota.errors import ConfigurationError, UsageError
from rota.runtime import logs, supervised
from rota.runtime.health_server import answering
from rota.runtime.http import check_url
from rota.runtime.supervisor import Supervisor
from rota.store import migrate
from rota.worker.summary import Summary


class LogLevel(StrEnum):
    """How much of what happens is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


NOT_PASSED_ON = ("processes", "health_port", "ping", "channel")


def work(
    context: typer.Context,
    app: AppOption = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SLOTS",
            help="A queue and its own slots; repeat it. Defaults to all queues of the App's types and default.",
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(help=f"Jobs at once over all queues, without --queue. Defaults to {SLOTS}."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop when nothing is due; print what was done.")
    ] = False,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="With --drain: claim nothing more after so long."
        ),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long running jobs may go on after SIGTERM or SIGINT."
        ),
    ] = "30s",
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=PROCESSES_MAX,
            help="Work in so many processes, each with these queues and slots; one that dies is replaced. Linux.",
        ),
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=HEALTH_PORT_MAX,
            help="Answer /healthz and /readyz there over HTTP, on all interfaces.",
        ),
    ] = None,
    ping: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Call a dead-man switch after a good drain; without --drain about each minute, while all is well. Defaults to ROTA_PING_URL.",
        ),
    ] = None,
    channel: Annotated[int | None, typer.Option(hidden=True)] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="What to log on stderr; one line per step of a job is info.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        logs.Form, typer.Option(help="How to log it, one line each: to read, or as JSON.")
    ] = logs.Form.PLAIN,
    as_json: JsonOption = False,
) -> None:
    """Run jobs until SIGTERM or SIGINT: then finish what runs, hand the rest back, and exit 0, also when jobs failed. A second signal hurries."""
    if channel is not None:
        supervised.join(channel)
    if queue and slots is not None:
        raise UsageError(
            "--slots is shared by all queues, and --queue gives each its own: give one of them"
        )
    if for_ is not None and not drain:
        raise UsageError("--for ends a drain: give --drain as well")
    if health_port is not None and drain:
        raise UsageError(
            "--health-port is for a worker that stays up, and a drain does not: give one of them"
        )
    queues = _queues(queue) if queue else None
    ping = _ping_url(ping) if channel is None else None  # of several processes the parent pings
    if processes is not None:
        _work_in_processes(
            processes,
            _arguments(context),
            log_level,
            log_format,
            health_port,
            ping,
            drain=drain,
            as_json=as_json,
        )
        return
    with logs.holding_warnings():
        chosen = need_app(app)  # it may set up logging of its own
        logs.setup(log_format, log_level)
    _refuse_unfit(chosen)
    shared = SLOTS if slots is None else slots
    if drain:
        report = chosen.drain(
            queues=queues, slots=shared, for_=for_, grace=grace, ping=ping, signals=True
        )
    else:
        report = chosen.run(
            queues=queues, slots=shared, grace=grace, health_port=health_port, ping=ping
        )
    if supervised.current is not None:
        supervised.current.report(report)
    else:
        _say(report, drain=drain, as_json=as_json)


def _ping_url(given: str | None) -> str | None:
    url = given or os.environ.get("ROTA_PING_URL")
    return check_url(url, "the URL to ping (--ping, ROTA_PING_URL)") if url else None


def _work_in_processes(
    count: int,
    arguments: list[str],
    log_level: LogLevel,
    log_format: logs.Form,
    health_port: int | None,
    ping: str | None,
    *,
    drain: bool,
    as_json: bool,
) -> None:
    if sys.platform != "linux":
        raise ConfigurationError(
            "--processes runs on Linux only: here, start `rota work` several times instead"
        )
    logs.setup(log_format, log_level)
    command = ["-m", "rota", "work", *arguments, "--channel"]
    supervisor = Supervisor(command, count, drain=drain, ping_url=ping)
    with answering(health_port, supervisor.unwell, supervisor.unready):
        status = supervisor.run()
    if status == 0 or supervisor.reports:
        _say(
            _sum([msgspec.convert(report, Summary) for report in supervisor.reports]),
            drain=drain,
            as_json=as_json,
        )
    if status:
        raise typer.Exit(status)


def _arguments(context: typer.Context) -> list[str]:
    """The options of this command, but for those that are the parent's own business."""
    arguments: list[str] = []
    for option in context.command.params:
        value = context.params[str(option.name)]
        if value is None or value is False or option.name in NOT_PASSED_ON:
            continue
        name = option.opts[0]
        for one in value if isinstance(value, list | tuple) else [value]:
            arguments += [name] if one is True else [f"{name}={one}"]
    return arguments


def _sum(reports: list[Summary]) -> Summary:
    """What all did; what is due is what the last to end saw."""
    return Summary(
        sum(report.claimed for report in reports),
        sum(report.succeeded for report in reports),
        sum(report.failed for report in reports),
        sum(report.dead for report in reports),
        reports[-1].oldest_due if reports else None,
        sorted({queue for report in reports for queue in report.paused}),
    )


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


def _refuse_unfit(app: App) -> None:
    """Say at once what would keep the worker from working."""
    with connect(app.database) as opened:
        opened.run(migrate.check(app.schema))


def _say(report: Summary, *, drain: bool, as_json: bool) -> None:
    if as_json:
        print_json(report)
    elif drain:
        typer.echo(report.line())
