"""Signatures that name the options of `**options: Unpack[…]`, for `help` and for completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Omitted:
    """The default of an option that need not be given."""

    def __repr__(self) -> str:
        return "…"


_OMITTED = _Omitted()


def name_options(define: F) -> F:
    """Let the signature of a function name its options: editors that read the running program, such
    as Jupyter and IPython, and `help` do not know `Unpack`."""
    made: Any = define
    made.__signature__ = read_signature(define)
    return define


def read_signature(define: Any) -> inspect.Signature:
    """Return the signature of a function of Rota, with each of its options by name."""
    signature = inspect.signature(define)
    parameters = list(signature.parameters.values())
    said = str(parameters[-1].annotation) if parameters else ""
    if not said.startswith("Unpack["):
        return signature
    unpacked = said.removeprefix("Unpack[").removesuffix("]")
    options: Any = define.__globals__[unpacked]
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in options.__required_keys__ else _OMITTED,
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in options.__annotations__.items()
        if name not in signature.parameters
    ]
    return signature.replace(parameters=[*parameters[:-1], *named])
