"""The grammar of the command line: `rota queues` lists, `rota queues pause email` acts.

Daily verbs stand at the top: `rota work`. The answer to an unknown word says what it may mean.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli.flags import find_flags, spread
from rota.cli.output import join_lines, read_template
from rota.errors import UsageError

PAGE = read_template("help.txt")
"""The page of `rota --help`: groups of lines, each with one command or a pair of commands."""

_MEANT: Mapping[str, tuple[str, ...]] = {
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
    "list": ("jobs",),
    "logs": ("job",),
    "show": ("job",),
    "purge": ("cancel",),
    "requeue": ("retry",),
    "result": ("job",),
    "revoke": ("cancel",),
    "status": ("stats", "top"),
    "-A": ("--app",),
    "-c": ("--concurrency",),
    "-l": ("--log-level",),
    "-Q": ("--queue",),
    "--countdown": ("--delay",),
    "--eta": ("--run-at",),
    "--loglevel": ("--log-level",),
    "--reason": ("--why",),
}
"""Rota's word for commands and options of other systems."""


def explain_option(option: str, context: Any) -> str | None:
    """Return the meaning of an option that a command does not have; None: unknown."""
    if context.parent is None:
        return "options go after the command, as in `rota work --app shop:app`"
    known = {name for parameter in context.command.params for name in parameter.opts}
    meant = known.intersection(_MEANT.get(option, ()))
    return f"did you mean {meant.pop()}?" if meant else None


def explain_value(message: str) -> str:
    """Return typer's message about a value in the words of the other messages."""
    said = re.sub(r"Input should be ([^,]+)(?:, unable to parse .*)?", r"it must be \1", message)
    return said.replace("a valid integer", "a whole number").replace("a valid ", "a ")


def explain_extra(message: str, context: Any) -> str:
    """Return typer's message about unexpected words; to arguments of a handler add their place."""
    takes = any("--payload" in parameter.opts for parameter in context.command.params)
    given = re.search(r"extra argument\S* \((.*)\)$", message)
    if given is None or not takes:
        return message
    words = re.findall(r"(\w+)=(\S*)", given[1])
    if not words and not given[1].startswith("{"):
        return message
    payload = _encode(words) if words else given[1]
    return f"{message}: the handler's arguments are JSON: --payload '{payload}'"


def _encode(words: list[tuple[str, str]]) -> str:
    given: dict[str, Any] = {}
    for name, text in words:
        try:
            given[name] = json.loads(text)
        except ValueError:
            given[name] = text
    return json.dumps(given, ensure_ascii=False)


def find_own(word: str, arguments: list[str]) -> Any:
    """Return a command of the App's Jobs; None: no command has this name."""
    from rota.cli.of_jobs import find_noun  # noqa: PLC0415 - only where no other command fits

    return find_noun(word, arguments)


class Root(TyperGroup):
    """`rota`: its page, and the answer to an unknown word."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page as plain text that fits 80 columns."""
        typer.echo(PAGE, nl=False)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands and word not in _MEANT and (own := find_own(word, args)):
            self.commands = {**self.commands, word: own}
        if word not in self.commands:
            nouns = {
                name: getattr(command, "commands", {}) for name, command in self.commands.items()
            }
            meant = [f"{noun} {word}" for noun, verbs in nouns.items() if word in verbs]
            hints = _MEANT.get(word) or meant or get_close_matches(word, nouns, cutoff=0.65)
            _refuse(word, hints, "rota", "; commands of your jobs need --app")
        return super().resolve_command(ctx, args)


class Noun(TyperGroup):
    """`rota queues`: the answer to an unknown verb."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands:
            verbs = get_close_matches(word, self.commands) or ["show"] * ("show" in self.commands)
            also = [f"{self.name} {verb}{f' {word}' * (verb == 'show')}" for verb in verbs]
            _refuse(word, also if word != "list" else [self.name or ""], ctx.command_path)
        return super().resolve_command(ctx, args)


def _refuse(word: str, meant: Iterable[str], path: str, also: str = "") -> None:
    hint = " or ".join(f"`rota {command}`" for command in meant)
    more = f": did you mean {hint}?" if hint else f"; see {path} --help{also}"
    raise UsageError(f"there is no command {word!r}{more}")


def make_noun(listing: Callable[..., None], **verbs: Callable[..., None]) -> typer.Typer:
    """Make the commands of a noun: alone it lists; with a verb it acts."""
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
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in (first, *options)}
    app.callback(invoke_without_command=True, help=read_help(listing))(call)
    for verb, command in verbs.items():
        app.command(verb.rstrip("_").replace("_", "-"), help=read_help(command))(spread(command))
    return app


def read_help(command: Callable[..., None]) -> str:
    return join_lines(inspect.getdoc(command) or "")
