"""The command line `rota`.

Results go to stdout, everything else to stderr. With `--json` a command prints one JSON object on
stdout. A command that fails prints `{"error": {"type": …, "message": …}}` as the last line of
stderr instead.

Exit status: 0 success, 1 other error, 2 usage, 3 configuration or schema, 4 a worker gave up, 5
database unavailable, 6 drain refused in a restored copy.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer

from rota import logs
from rota.cli.flags import spread
from rota.cli.grammar import Root, explain_extra, explain_option, explain_value, read_help
from rota.cli.output import json_line
from rota.cli.process import leave, prepare
from rota.declare.release import VERSION
from rota.errors import ConfigurationError, RotaError
from rota.model.failure import one_line

logger = logging.getLogger("rota")
_PLACES = {
    "migrate": "schema.migrate",
    "sync": "schema.sync",
    "crontab": "crontab.crontab",
    "demo": "demo.demo",
    "docs": "docs.docs",
    "web": "web.web",
    "mcp": "mcp.mcp",
    "work": "work.work",
    "enqueue": "enqueue.enqueue",
    "run": "run_job.run",
    "jobs": "jobs.jobs",
    "job": "jobs.job",
    "errors": "errors.errors",
    "top": "top.top",
    "stats": "overview.stats",
    "doctor": "doctor.doctor",
    "metrics": "overview.metrics",
    "check": "check.check",
    "retry": "actions.retry",
    "cancel": "actions.cancel",
    "reschedule": "actions.reschedule",
    "discard": "actions.discard",
    "archive": "actions.archive",
    "erase": "erase.erase",
    "groups": "groups.groups",
    "alerts": "check.alerts",
    "workers": "overview.workers",
    "types": "overview.types",
    "queues": "queues.app",
    "schedules": "schedules.app",
    "batches": "batches.app",
    "effects": "effects.app",
    "limits": "limits.app",
    "breakers": "breakers.app",
    "secrets": "secrets.app",
    "import-table": "import_table.import_table",
    "db": "db.app",
}
"""Where each word is: the function of a verb, the typer of a noun."""

# The error of typer for a wrong command line. It has no public name: older releases of typer take
# it from click, newer releases define it.
_TyperError: type[Exception] = typer.BadParameter.__mro__[2]


def main() -> None:
    """Run the command of this process's arguments, and exit."""
    prepare()
    status = 1  # if `run` raises; Python then prints the traceback
    try:
        status = run(sys.argv[1:])
    finally:
        leave(status)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status. Print an error as one sentence on stderr."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in own
    if own is arguments and arguments[-1:] == ["-h"]:  # an option would have its column
        arguments = [*arguments[:-1], "--help"]
    try:
        if sys.platform == "win32":
            raise ConfigurationError(
                "Rota runs on Linux and macOS, not on Windows; use WSL or a container"
            )
        status = _make_command(_find_words(arguments))(
            list(arguments), prog_name="rota", standalone_mode=False
        )
    except RotaError as error:
        said = "\n".join((str(error), *getattr(error, "__notes__", ())))
        return _fail(error, said, error.exit_code, as_json=as_json, logged=_logs(own))
    except typer.Abort as error:
        return _fail(error, "aborted", 1, as_json=as_json)
    except _TyperError as error:
        return _fail_usage(error, as_json=as_json, logged=_logs(own))
    except Exception as error:
        if as_json:
            return _fail(error, str(error) or type(error).__name__, 1, as_json=True)
        if not _logs(own):
            raise  # a bug in Rota: the traceback says where
        logger.critical("%s", one_line(f"{type(error).__name__}: {error}"), exc_info=error)
        return 1
    return status if isinstance(status, int) else 0


def make_cli(words: Iterable[str] = _PLACES) -> typer.Typer:
    """Make the command line with these words, and import their modules: to import and make all
    takes longer than most commands run."""
    cli = typer.Typer(cls=Root, add_completion=False, pretty_exceptions_enable=False)
    cli.callback(invoke_without_command=True)(_root)
    for word in words:
        module, name = _PLACES[word].split(".")
        found = getattr(import_module(f"rota.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            cli.add_typer(found, name=word)
        else:
            cli.command(word, help=read_help(found))(spread(found))
    return cli


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def _find_words(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the words that arguments need: the first; all, if a hint must name known words."""
    first = tuple(word for word in arguments if not word.startswith("-"))[:1]
    return first if _PLACES.keys() >= set(first) else tuple(_PLACES)


@cache
def _make_command(words: tuple[str, ...]) -> Any:
    command = typer.main.get_command(make_cli(words))
    _hide_flag_types(command)
    return command


def _hide_flag_types(command: Any) -> None:
    """Keep `--help` from printing `<bool>` after a flag, as if the flag took a value."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _hide_flag_types(below)


def _logs(arguments: Sequence[str]) -> bool:
    """Whether errors on stderr must be lines in the format of --log-format, also before logging is
    set up: a log collector reads nothing else."""
    pairs = [*pairwise(arguments), *(tuple(argument.split("=")) for argument in arguments)]
    asked = next((form for form in logs.Form if ("--log-format", form) in pairs), None)
    return asked is not None and (logs.setup(asked, None) or logs.form() is asked)


def _fail_usage(error: BaseException, *, as_json: bool, logged: bool) -> int:
    context = getattr(error, "ctx", None)
    message: str = error.format_message()  # type: ignore[attr-defined]
    if not message.strip():
        return 2  # a group without a command: typer has printed its help
    option = getattr(error, "option_name", None)
    meant = explain_option(option, context) if option and context else None
    if meant is not None:
        message = f"No such option: {option}: {meant}"
    message = explain_value(message.rstrip("."))
    if context is not None:
        message = explain_extra(message, context)
    more = f"; see {context.command_path} --help" if context is not None else ""
    return _fail(
        error,
        f"{message}{more}",
        2,
        as_json=as_json,
        logged=logged,
        kind="UsageError",
    )


def _fail(
    error: BaseException,
    message: str,
    status: int,
    *,
    as_json: bool,
    logged: bool = False,
    kind: str | None = None,
) -> int:
    if logged and not as_json:
        logger.error("%s", message.strip())
        return status
    what = {"error": {"type": kind or type(error).__name__, "message": message.strip()}}
    typer.echo(json_line(what) if as_json else f"rota: {message.strip()}", err=True)
    return status
