"""Commands that the Jobs of an App bring along: `rota mail find ada@example.org`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any

import typer

from rota.cli.grammar import Noun, read_help
from rota.cli.output import print_facts, print_json, print_table
from rota.cli.target import AppOption, JsonOption, find_app
from rota.errors import RotaError


def find_noun(word: str, arguments: Sequence[str]) -> Any:
    """Return the command of a word that stands for commands of the App's Jobs; None: there is no
    such App, or it has none."""
    asked = [part for one in arguments for part in one.split("=", one.startswith("--app="))]
    reference = asked[asked.index("--app") + 1] if "--app" in asked[:-1] else None
    try:
        owner = find_app(reference)
    except RotaError:
        return None  # whoever needs the App says what is wrong with it
    commands = {} if owner is None else owner._declarations.commands
    app = typer.Typer(cls=Noun)
    app.callback()(lambda: None)
    verbs = {name.split()[1]: one for name, one in commands.items() if name.split()[0] == word}
    for verb, function in verbs.items():
        app.command(verb, help=read_help(function).split("\n\n")[0])(_make(function))
    if not verbs:
        return None
    found: Any = typer.main.get_command(app)
    found.name = word
    return found


def _make(function: Callable[..., Any]) -> Callable[..., None]:
    """Make a command of a function: its positional arguments are those of the command, the others
    are options; what it returns is printed."""
    hints = typing.get_type_hints(function)

    def call(*, app: str | None, as_json: bool, **given: Any) -> None:
        _print(function(**given), as_json=as_json)

    parameters = []
    for one in inspect.signature(function).parameters.values():
        hint: Any = hints[one.name]
        if one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty:
            hint = typing.Annotated[hint, typer.Option()]
        parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))
    for name, hint, default in (("app", AppOption, None), ("as_json", JsonOption, False)):
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _print(value: Any, *, as_json: bool) -> None:
    if isinstance(value, list):
        rows = [one._asdict() for one in value]
        if as_json:
            print_json({"found": rows})
            return
        columns = [name.replace("_", " ") for name in rows[0]] if rows else ()
        print_table(columns, [list(one.values()) for one in rows], empty="nothing found")
        return
    facts = value.to_dict() if hasattr(value, "to_dict") else {"answer": value}
    if as_json:
        print_json(facts)
    else:
        print_facts(facts.items())
