"""Imports an object by `module:attribute`."""

from __future__ import annotations

import importlib
from typing import TypeVar

from rota.errors import ConfigurationError

T = TypeVar("T")


def load(reference: str, kind: type[T]) -> T:
    """Import an object. Raises ConfigurationError."""
    module, _, attribute = reference.partition(":")
    if module.endswith(".py") or "/" in module:
        module = module.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(
            f"{reference!r} must name a module, not a file: {module}:{attribute or 'app'}"
        )
    if not module or not attribute or module.startswith("."):
        raise ConfigurationError(f"{reference!r} must be module:attribute, as in myproject.app:app")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"{reference!r}: no module {error.name!r} on sys.path "
                "(which begins with the current directory)"
            ) from None
        raise
    except SystemExit as error:  # otherwise a drain would exit 0 with nothing done
        raise ConfigurationError(
            f"{reference!r}: importing module {module!r} ended the program "
            f"(sys.exit({error.code!r:.200})); "
            "put code that must not run on import under `if __name__ == '__main__':`"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(
                f"{reference!r}: module {module!r} has no attribute {attribute!r}"
            )
        found = getattr(found, part)
    if not isinstance(found, kind):
        raise ConfigurationError(
            f"{reference!r} is a {type(found).__name__}, not a rota.{kind.__name__}"
        )
    return found
