"""The grammar of the command line: `rota queues` lists, `rota queues pause email` acts.

Daily verbs stand at the top: `rota work`. An unknown word is answered with what may be meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli.bundle import spread
from rota.cli.flags import find_flags
from rota.cli.output import join_lines
from rota.errors import UsageError

PAGE: Mapping[str, Mapping[str, str]] = {
    "Set up": {
        "migrate, sync": "Create or update the tables; declare types and schedules",
        "crontab": "Print a crontab: jobs without a permanent worker",
        "demo": "See it work: an evening and a morning in a small shop",
    },
    "Run": {
        "work": "Run jobs until stopped; with --drain until none is due",
        "enqueue, run": "Enqueue a job; run one here and now, to debug it",
    },
    "Look": {
        "jobs, job": "List jobs; show one with its timeline",
        "top, web": "Watch queues, jobs and workers: here, or in a browser",
        "doctor, errors": "What is wrong, and what to do; each error once",
        "stats, metrics": "Recent statistics; gauges, as Prometheus reads them",
        "alerts, check": "Alerts and their rules; the rules now, for a monitor",
    },
    "Act on jobs": {
        "retry, discard": "Run jobs now, finished ones with --again; make jobs dead",
        "cancel, reschedule": "Cancel jobs; move them to another time or queue",
        "archive, erase": "Archive dead jobs; erase a person's data",
    },
    "Nouns: alone they list, with a verb they act (rota queues pause email)": {
        "queues": "Due jobs, limits and pauses: set, pause, resume",
        "schedules": "Schedules: show, put, pause, resume, trigger, delete",
        "batches": "Batches: show, cancel",
        "effects, groups": "Effects and steps, ordered groups: resolve",
        "limits": "Rate limits: set",
        "breakers": "Circuit breakers: trip, reset",
        "workers, types": "Workers; job types",
        "secrets": "Keys of secrets: new-key, rotate",
        "db": "The private PostgreSQL: url, psql, stop, reset",
    },
}
"""What `rota --help` shows: groups of lines, each of one command or of two that belong together."""

_MEANT: Mapping[str, tuple[str, ...]] = {
    "batch": ("batches show",),
    "beat": ("work", "schedules"),
    "bury": ("discard",),
    "call": ("enqueue",),
    "dead": ("jobs --status dead",),
    "delete": ("cancel", "discard", "schedules delete"),
    "events": ("top", "job"),
    "flower": ("top", "stats"),
    "help": ("--help",),
    "ignore": ("archive",),
    "init": ("migrate",),
    "inspect": ("top", "workers"),
    "kill": ("cancel", "retry"),
    "lanes": ("groups",),
    "list": ("jobs",),
    "purge": ("cancel",),
    "requeue": ("retry",),
    "result": ("job",),
    "revoke": ("cancel",),
    "rerun": ("retry", "retry --again"),
    "run-again": ("retry --again",),
    "schedule": ("schedules",),
    "settle": ("effects resolve",),
    "status": ("stats", "top"),
    "worker": ("work", "workers"),
}
"""What is meant by words of other systems, and of Rota before its first release."""


_MEANT_OPTIONS = {
    "-A": "--app", "-c": "--concurrency", "-l": "--log-level", "-Q": "--queue",
    "--countdown": "--delay", "--eta": "--run-at", "--loglevel": "--log-level", "--reason": "--why",
}  # fmt: skip
"""The same of options."""


def explain_option(option: str, context: Any) -> str | None:
    """Return what is meant by an option that a command does not have; None: that is not known."""
    if context.parent is None:
        return "options go after the command, as in `rota work --app shop:app`"
    meant = _MEANT_OPTIONS.get(option)
    known = {name for one in context.command.params for name in one.opts}
    return f"did you mean {meant}?" if meant in known else None


def find_own(word: str, arguments: list[str]) -> Any:
    """Return a command that the App brings along; None: it has none of this name."""
    from rota.cli.of_jobs import find_noun  # noqa: PLC0415 - only where no other command fits

    return find_noun(word, arguments)


class Root(TyperGroup):
    """`rota`: its page, and the answer to an unknown word."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page, in plain text that fits 80 columns."""
        typer.echo(f"Usage: rota COMMAND [OPTIONS]\n\n{self.help}")
        for title, lines in PAGE.items():
            typer.echo(f"\n{title}")
            for names, text in lines.items():
                typer.echo(f"  {names:<18}  {text}")
        typer.echo("\nrota COMMAND --help shows the options of one; rota --version the version.")
        typer.echo("An App may add commands of its Jobs, such as rota webhook: name it by --app.")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. Raises UsageError for an unknown one."""
        word = args[0]
        if word not in self.commands and word not in _MEANT and (own := find_own(word, args)):
            self.commands = {**self.commands, word: own}
        if word not in self.commands:
            nouns = {name: getattr(one, "commands", {}) for name, one in self.commands.items()}
            meant = [f"{noun} {word}" for noun, verbs in nouns.items() if word in verbs]
            hints = _MEANT.get(word) or meant or get_close_matches(word, nouns)
            _refuse(word, hints, "rota", "; commands of your jobs need --app")
        return super().resolve_command(ctx, args)


class Noun(TyperGroup):
    """`rota queues`: the answer to an unknown verb."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb. Raises UsageError for an unknown one."""
        word = args[0]
        if word not in self.commands:
            verbs = get_close_matches(word, self.commands) or ["show"] * ("show" in self.commands)
            also = [f"{self.name} {verb}{f' {word}' * (verb == 'show')}" for verb in verbs]
            _refuse(word, also if word != "list" else [self.name or ""], ctx.command_path)
        return super().resolve_command(ctx, args)


def _refuse(word: str, meant: Iterable[str], path: str, also: str = "") -> None:
    hint = " or ".join(f"`rota {one}`" for one in meant)
    more = f": did you mean {hint}?" if hint else f"; see {path} --help{also}"
    raise UsageError(f"there is no command {word!r}{more}")


def make_noun(listing: Callable[..., None], **verbs: Callable[..., None]) -> typer.Typer:
    """Make the commands of a noun: alone it lists, with a verb it calls that."""
    app = typer.Typer(cls=Noun)
    run = spread(listing)
    options = list(inspect.signature(run).parameters.values())
    flags = find_flags(options)

    def call(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            run(**given)
            return
        for name, flag in flags.items():
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                verb = f"{context.command_path} {context.invoked_subcommand}"
                raise UsageError(f"{flag} goes after the verb: {verb} … {flag}")

    first = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    call.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in (first, *options)}
    app.callback(invoke_without_command=True, help=read_help(listing))(call)
    for verb, command in verbs.items():
        app.command(verb.rstrip("_").replace("_", "-"), help=read_help(command))(spread(command))
    return app


def read_help(command: Callable[..., None]) -> str:
    return join_lines(inspect.getdoc(command) or "")
