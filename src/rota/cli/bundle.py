"""Bundles: options that several commands share, declared once as the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints

from rota.cli.flags import annotate, find_flags, name_flags
from rota.errors import ConfigurationError, UsageError


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the fields of its bundles as options of their own.

    A bundle is a parameter whose type is a dataclass, such as `place: Place`. typer makes an option
    of each parameter, and knows no groups of them.
    """
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
        annotate(option)
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
