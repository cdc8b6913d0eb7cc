"""Commands of the App's Jobs: `rota mail find ada@example.org`."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
import typing
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import EnumType
from inspect import Parameter
from typing import Any

import typer

from rota.cli.grammar import make_noun
from rota.cli.listing import Listing
from rota.cli.output import print_facts, print_json
from rota.cli.target import AppOption, JsonOption, find_app
from rota.errors import RotaError, UsageError

SECRET = "secret"
"""The option that can be read from standard input."""


def find_noun(word: str, arguments: Sequence[str]) -> Any:
    """Return the commands of the App's Jobs under a word; None: no such App or commands."""
    asked = [
        part
        for argument in arguments
        for part in argument.split("=", argument.startswith("--app="))
    ]
    reference = asked[asked.index("--app") + 1] if "--app" in asked[:-1] else None
    try:
        owner = find_app(reference)
    except RotaError:
        return None  # whoever needs the App says what is wrong with it
    commands = {} if owner is None else owner._declarations.commands
    named = {tuple(name.split()): _make(command) for name, command in commands.items()}
    verbs = {verb: command for (noun, verb), command in named.items() if noun == word}
    if not verbs:
        return None

    def explain(app: AppOption = None) -> None:
        """Commands that the Jobs of your App bring along."""
        raise UsageError(f"rota {word} needs a verb: {', '.join(verbs)}")

    found: Any = typer.main.get_group(make_noun(verbs.get("list", explain), **verbs))
    found.name = word
    return found


def _make(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a command of a function. Its positional arguments become arguments, its other parameters
    but `connection` become options with the docstring's help, and its result is printed."""
    hints = typing.get_type_hints(function)
    text, _, more = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    said = re.findall(r"(?m)^    (\w+): (.+(?:\n {8}.+)*)", more.partition("\n\n")[0])
    helps = {"by": "Who acts.", "why": "Why, for the action log.", **dict(said)}
    if SECRET in helps:
        helps[SECRET] += " -: standard input, because everybody on the machine can see options."

    def call(*, app: str | None, as_json: bool, **given: Any) -> None:
        if given.get(SECRET) == "-":
            given[SECRET] = sys.stdin.read().strip()
        _print(function(**given), as_json=as_json)

    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "connection":
            continue
        hint: Any = _choose_kind(hints[parameter.name])
        is_positional = parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
        is_argument = is_positional and parameter.default is Parameter.empty
        info = (typer.Argument if is_argument else typer.Option)(help=helps.get(parameter.name))
        hint = typing.Annotated[hint, info]
        parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))
    for name, hint, default in (("app", AppOption, None), ("as_json", JsonOption, False)):
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__doc__ = text.split("\n\n")[0]
    return call


def _choose_kind(hint: Any) -> Any:
    """Return what a text becomes: no timedelta where a str may stand, an enum and not its words."""
    kinds = typing.get_args(hint)
    is_enum = any(isinstance(kind, EnumType) for kind in kinds)
    left = [
        kind
        for kind in kinds
        if kind is not timedelta and not (is_enum and typing.get_origin(kind) is typing.Literal)
    ]
    return hint if len(left) == len(kinds) else functools.reduce(operator.or_, left)


def _print(value: Any, *, as_json: bool) -> None:
    if isinstance(value, list):
        rows = [row._asdict() for row in value]
        if as_json:
            print_json({"found": rows})
            return
        columns = [name.replace("_", " ") for name in rows[0]] if rows else ()
        Listing("found", columns, empty="nothing found").print(rows)
        return
    if isinstance(value, str | int) and not as_json:
        typer.echo(value)
        return
    if not isinstance(value, dict):
        value = value.to_dict() if hasattr(value, "to_dict") else {"answer": value}
    if as_json:
        print_json(value)
    else:
        print_facts(value.items())
