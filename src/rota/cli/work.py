"""`rota work`: runs one worker or several, until a signal, or until nothing is due."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec
import typer

from rota import logs
from rota.app import App
from rota.cli.flags import flag, option
from rota.cli.output import print_json
from rota.cli.process import fork_from_init
from rota.cli.reload import Reloader
from rota.cli.target import AppOption, JsonOption, connect, need_app, need_reference
from rota.declare.config import HEALTH_PORT_MAX, PROCESSES_MAX, SLOTS, check_url
from rota.declare.url import make_plain
from rota.errors import ConfigurationError, UsageError
from rota.logs import DATABASE_VARIABLE
from rota.runtime import supervised
from rota.runtime.health_server import serve_health
from rota.runtime.supervisor import ServedDatabase, SumsMetrics, Supervisor
from rota.store import migrate
from rota.store.drivers.own import name_place, parse_url
from rota.worker.summary import Summary

NOT_PASSED_ON = ("database", "processes", "health_port", "ping", "channel")
"""What the parent of several processes does itself."""


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """How one worker works, or several workers."""

    queue: list[str] | None = option(
        "--queue NAME[=SLOTS]",
        "Serve this queue, with slots of its own or those of --concurrency. Repeatable. "
        "Default: all queues of the App's types, and the queue named default.",
    )
    concurrency: int | None = option(
        "--concurrency",
        "Maximum number of concurrent jobs over all queues without slots of their own. "
        f"Default: {SLOTS}.",
    )
    reserved: int | None = option(
        "--reserved",
        "Slots that only jobs with a priority above 0 may take, of each queue with its "
        "own slots or of the shared ones. 0: none. Default: ROTA_RESERVED, then one in "
        "five, at least one of two.",
    )
    drain: bool = flag("--drain", "Stop when no job is due, and print a summary. For cron.")
    max_time: str | None = option(
        "--for DURATION", "With --drain: stop claiming jobs after this time. Default: no limit."
    )
    grace: str = option(
        "--grace DURATION",
        "Grace period of running jobs after SIGTERM, SIGINT or SIGHUP. "
        "A second SIGTERM or SIGINT skips it.",
        default="30s",
    )
    processes: int | None = option(
        "--processes",
        "Number of worker processes, each with all these queues and slots. A process that "
        "dies is replaced. Linux only. Default: one, without a parent.",
        min=1,
        max=PROCESSES_MAX,
    )
    database: list[str] | None = option(
        "--database URL",
        "Serve this database, with --processes worker processes of its own. Repeatable, "
        "for databases with the same schema. Instead of ROTA_DATABASE_URL; an App whose code "
        "names another database is refused. Linux only.",
    )
    reload: bool = flag(
        "--reload",
        "For development: restart the worker when Python files of the project change. "
        "Needs the extra reload. Not with --drain, --processes or --database.",
    )
    health_port: int | None = option(
        "--health-port",
        "Serve /healthz, /readyz and the App's /metrics over HTTP on this port, on all "
        "interfaces. Not with --drain. Default: none.",
        min=1,
        max=HEALTH_PORT_MAX,
    )
    ping: str | None = option(
        "--ping URL",
        "Dead-man switch: request this URL after a successful drain; without --drain "
        "about once a minute while the worker is healthy. Default: ROTA_PING_URL, then none.",
    )
    channel: Annotated[int | None, typer.Option(hidden=True)] = None
    log_level: logs.LogLevel = option(
        "--log-level",
        "Least severe level logged to stderr. A success is info, a failed attempt is "
        "warning, a dead job is error.",
        default=logs.LogLevel.INFO,
    )
    log_format: logs.Form = option(
        "--log-format",
        "Format of log lines, and if given of errors: plain or JSON.",
        default=logs.Form.PLAIN,
    )

    @property
    def is_parent(self) -> bool:
        return self.processes is not None or bool(self.database)


def work(
    context: typer.Context,
    app: AppOption = None,
    *,
    asked: WorkOptions,
    as_json: JsonOption = False,
) -> None:
    """Run jobs until SIGTERM, SIGINT or SIGHUP; with --drain, until no job is due.

    After the signal the worker claims no more jobs, waits for running jobs for the grace period,
    and returns the rest to the queue. A second SIGTERM or SIGINT skips the grace period.
    Exits 0, even if jobs failed. The database is the App's.
    """
    if asked.channel is not None:
        supervised.join(asked.channel)
    elif not asked.is_parent:  # a parent reaps orphans itself
        fork_from_init()
    queues = _queues(asked.queue) if asked.queue else None
    _refuse_conflicts(asked, queues)
    if asked.reload:
        logs.setup(asked.log_format, asked.log_level)
        directory, _ = need_reference(app)
        Reloader(["work", *_arguments(context, ["reload", "channel"])], directory).run()
        return
    # Only the parent pings, if there is one.
    ping = _ping_url(asked.ping) if asked.channel is None else None
    if asked.is_parent:
        _work_in_processes(asked, _arguments(context, NOT_PASSED_ON), ping, as_json=as_json)
        return
    with logs.hold_warnings():
        chosen = need_app(app)  # the import may set up its own logging
        logs.setup(asked.log_format, asked.log_level)
    _refuse_unfit(chosen)
    given: Any = {
        "queues": queues,
        "concurrency": SLOTS if asked.concurrency is None else asked.concurrency,
        "reserved": asked.reserved,
        "grace": asked.grace,
        "ping": ping,
    }
    if asked.drain:
        report = chosen.drain(**given, max_time=asked.max_time, signals=True)
    else:
        report = chosen.run(**given, health_port=asked.health_port)
    if supervised.current is not None:
        supervised.current.report(report)
    else:
        _say(report, drain=asked.drain, as_json=as_json)


def _refuse_conflicts(asked: WorkOptions, queues: dict[str, int | None] | None) -> None:
    if queues and None not in queues.values() and asked.concurrency is not None:
        raise UsageError(
            "give --concurrency or --queue NAME=SLOTS, not both: each of these queues has its own "
            "slots"
        )
    if asked.max_time is not None and not asked.drain:
        raise UsageError("--for needs --drain")
    if asked.health_port is not None and asked.drain:
        raise UsageError("give --health-port or --drain, not both: a drain has no health port")
    if asked.reload and (asked.drain or asked.is_parent):
        raise UsageError("give --reload alone, without --drain, --processes and --database")


def _ping_url(given: str | None) -> str | None:
    url = given or os.environ.get("ROTA_PING_URL")
    return check_url(url, "the URL to ping (--ping, ROTA_PING_URL)") if url else None


def _work_in_processes(
    asked: WorkOptions, arguments: list[str], ping: str | None, *, as_json: bool
) -> None:
    count = asked.processes or 1
    databases = _name_databases(asked.database or [], count)
    if sys.platform != "linux":
        raise ConfigurationError(
            "--processes and --database work on Linux only: start `rota work` several times instead"
        )
    logs.setup(asked.log_format, asked.log_level)
    command = ["-m", "rota", "work", *arguments, "--channel"]
    sums = make_sums() if asked.health_port is not None else None
    supervisor = Supervisor(
        command, count, drain=asked.drain, databases=databases, ping_url=ping, sums=sums
    )
    metrics = None if sums is None else supervisor.metrics
    with serve_health(asked.health_port, supervisor.liveness, supervisor.readiness, metrics):
        status = supervisor.run()
    if status == 0 or supervisor.reports:
        reports = [(name, msgspec.convert(report, Summary)) for name, report in supervisor.reports]
        _say(_sum(reports), drain=asked.drain, as_json=as_json)
    if status:
        raise typer.Exit(status)


def _name_databases(urls: list[str], processes: int) -> list[ServedDatabase]:
    """Raise UsageError for a repeated database, or for too many databases."""
    found: dict[str, ServedDatabase] = {}
    for url in map(make_plain, urls):
        name = name_place(url)
        if name in found:
            raise UsageError(
                f"--database names {name} twice: --processes gives a database more processes"
            )
        found[name] = ServedDatabase(name, url)
    if len(found) * processes > PROCESSES_MAX:
        raise UsageError(
            f"{len(found)} databases with {processes} processes each are more than {PROCESSES_MAX}"
        )
    return list(found.values())


def make_sums() -> SumsMetrics | None:
    """Return the sums of the metrics of several processes; None: the extra is not installed."""
    if find_spec("prometheus_client") is None:
        return None
    return import_module("rota.integrations.prometheus_sums").Sums()  # type: ignore[no-any-return]


def _arguments(context: typer.Context, but: Collection[str]) -> list[str]:
    """Return the arguments of a worker process: this command's without the parent's options."""
    arguments: list[str] = []
    for taken in context.command.params:
        value = context.params[str(taken.name)]
        if value is None or value is False or taken.name in but:
            continue
        name = taken.opts[0]
        for part in value if isinstance(value, list | tuple) else [value]:
            arguments += [name] if part is True else [f"{name}={part}"]
    return arguments


def _sum(named: list[tuple[str | None, Summary]]) -> Summary:
    """Add up reports. `oldest_due`: of the last process to end; the oldest of all databases."""
    last, reports = dict(named), [report for _, report in named]
    return Summary(
        sum(report.claimed for report in reports),
        sum(report.succeeded for report in reports),
        sum(report.failed for report in reports),
        sum(report.dead for report in reports),
        min((report.oldest_due for report in last.values() if report.oldest_due), default=None),
        sorted({queue for report in reports for queue in report.paused}),
    )


def _queues(given: list[str]) -> dict[str, int | None]:
    queues: dict[str, int | None] = {}
    for text in given:
        if "," in text:
            each = " ".join(f"--queue {queue.strip()}" for queue in text.split(","))
            raise UsageError(f"--queue takes one queue each: {each}")
        name, sign, slots = text.rpartition("=") if "=" in text else (text, "", "")
        if not name or (sign and not slots.isdecimal()):
            raise UsageError(f"--queue takes NAME or NAME=SLOTS, as in email=20, not {text!r}")
        if name in queues:
            raise UsageError(f"--queue names {name!r} twice")
        queues[name] = int(slots) if sign else None
    return queues


def _refuse_unfit(app: App) -> None:
    """Raise at once if the database or its schema would stop the worker, or if the App's database
    is not that of --database: an enqueue in a handler would go elsewhere."""
    name, given = os.environ.get(DATABASE_VARIABLE), os.environ.get("ROTA_DATABASE_URL", "")
    own = app._find_url() if name and supervised.current is not None else None
    if own is not None and parse_url(own) != parse_url(make_plain(given)):
        raise ConfigurationError(
            f"--database gives {name}, but the App has a URL in its code: leave it out, so that it "
            "is ROTA_DATABASE_URL, or read that"
        )
    with connect(app._database) as opened:
        opened.run(migrate.check(app.schema, app._declarations.packages))


def _say(report: Summary, *, drain: bool, as_json: bool) -> None:
    if as_json:
        print_json(report)
    elif drain:
        typer.echo(report.line())
