"""Declares the options of commands, and names them in messages as a person types them.

A bundle is a dataclass whose fields are options that several commands share. Messages of shared
rules name Python's parameters, and become `--max-attempts must be …` here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

from rota.errors import ConfigurationError, UsageError


@dataclass(frozen=True, slots=True)
class Declared:
    """Stands in place of a parameter's default: how the parameter is typed, and its default."""

    info: ParameterInfo
    default: Any


def option(spelling: str, help: str, *, default: Any = None, **checks: Any) -> Any:
    """Declare an option as its help shows it: `option("--type NAME", "Only jobs of this type.")`.

    A number and a choice need no name for their value.
    """
    name, _, metavar = spelling.partition(" ")
    return Declared(typer.Option(name, metavar=metavar or None, help=help, **checks), default)


def flag(name: str, help: str) -> Any:
    """Declare an option without a value."""
    return option(name, help, default=False)


def argument(metavar: str, help: str, *, default: Any = Parameter.empty, **checks: Any) -> Any:
    """Declare an argument without a name. Without a default it must be given."""
    return Declared(typer.Argument(metavar=metavar, help=help, **checks), default)


def find_flags(parameters: Iterable[Parameter]) -> dict[str, str]:
    """Return the flag of each option of a command, by parameter name."""
    found = {}
    for parameter in parameters:
        for info in get_args(parameter.annotation)[1:]:
            if isinstance(info, OptionInfo):
                # The first argument of an option is its default, or inside of Annotated a name.
                given = (info.default, *(info.param_decls or ()))
                named = [name for name in given if isinstance(name, str) and name.startswith("--")]
                flag = named[0].partition("/")[0] if named else _make_flag(parameter.name)
                found[parameter.name] = flag
    if "key" in found:
        found["idempotency_key"] = found["key"]  # so the database calls it
    return found


def list_flags(bundle: Any) -> list[str]:
    """Return the flags of a bundle's given options."""
    given = [name for name, value in asdict(bundle).items() if value not in (None, False)]
    return [_make_flag(name) for name in given]


def name_flags(message: str, flags: Mapping[str, str]) -> str:
    """Return a message with flags in place of the parameters that it names.

    A name of several words is always a parameter; `timeout` or `key` only at the beginning of the
    message, in "…; force takes", or in "give … or …, not both" and "give ids, or at least one of
    …". An action's name in Python before the parameter is left out: the person has typed the
    command.
    """
    message = re.sub(r"^[a-z_]+: (?=status must be |give (?:a status|ids|since))", "", message)
    message = re.sub(r"^give a status(?=,)", "give --status", message)
    choices = re.match(r"give (\w+) or (\w+), not both", message)
    lists_all = message.startswith("give ids, or at least one of ")
    for name, flag in flags.items():
        if "_" in name:
            message = re.sub(rf"""(?<![\w.'"-]){name}(?![\w('"-])""", flag, message)
        elif lists_all or (choices and name in choices.groups()):
            message = re.sub(rf"(?<![\w-]){name}(?=[ ,]|$)", flag, message, count=1)
        else:
            begins = rf"^(give )?{name}(?= (?:must|needs|is|has|to)\b)|(?<=; ){name}(?= takes\b)"
            message = re.sub(begins, rf"\1{flag}", message)
    return re.sub(r"""(--[a-z-]+)=["'](\w+)["']""", r"\1 \2", message)


def _annotate(parameter: Parameter) -> Parameter:
    """Return a parameter as typer takes it: with its declaration in the annotation."""
    declared = parameter.default
    if not isinstance(declared, Declared):
        return parameter
    annotation: Any = Annotated[parameter.annotation, declared.info]
    return parameter.replace(annotation=annotation, default=declared.default)


def _make_flag(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the fields of its bundles (parameters whose type is a dataclass, such
    as `place: Place`) as separate options: typer makes one option of each parameter."""
    signature = inspect.signature(command, eval_str=True)
    bundles: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        try:
            return command(**given)
        except (UsageError, ConfigurationError) as error:
            if len(error.args) == 1 and not hasattr(error, "__notes__"):  # a note is of the App
                error.args = (name_flags(str(error), flags),)
            raise

    options = [
        _annotate(option)
        for name, parameter in signature.parameters.items()
        for option in (_make_options(bundles[name]) if name in bundles else [parameter])
    ]
    flags = find_flags(options)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    )
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _make_options(bundle: Any) -> Iterator[Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    for field in fields(bundle):
        yield Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
