"""What one option takes, for Python, for SQL and for the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.model.bounds import check_bool, check_choice, check_integer, check_text
from rota.model.units import LONGEST_S, format_interval, seconds, words


class OptionKind(msgspec.Struct, frozen=True):
    """What values an option takes."""

    unit: str
    """The unit in the reference."""
    range: str
    """The range in the reference."""
    check: Callable[[Any, str], Any]
    """Returns the checked value, given the option's name for the error. Raises UsageError."""
    sql_type: str = ""
    """The type of the option's column in `job_type`; "": no column."""
    refused: str = ""
    """An SQL condition on `{name}` that is true of a value out of range."""
    must: str = ""
    """What the value must be, for the error in SQL."""


def whole(least: int, most: int, unit: str = "whole number") -> OptionKind:
    """A whole number in a range."""
    return OptionKind(
        unit,
        f"{least:,} … {most:,}".replace("-", "−"),
        partial(check_integer, least=least, most=most),
        "int",
        f"{{name}} is null or {{name}} not between {least} and {most}",
        f"be from {least} to {most}",
    )


def duration(least_s: float, most_s: float = LONGEST_S) -> OptionKind:
    """A duration in a range; the code has seconds."""
    shortest = words(least_s) if least_s else "0"
    longest = "100 years" if most_s == LONGEST_S else words(most_s)
    return OptionKind(
        "duration",
        f"{shortest} … {longest}",
        lambda value, name: seconds(value, name=name, least=least_s, most=most_s),
        "interval",
        f"{{name}} is null or {{name}} not between interval '{format_interval(least_s)}' "
        f"and interval '{format_interval(most_s)}'",
        f"be from {shortest} to {longest}",
    )


def choice(*values: str) -> OptionKind:
    """One of these words."""
    return OptionKind(
        "text",
        ", ".join(f'`"{value}"`' for value in values),
        partial(check_choice, choices=values),
        "text",
        f"coalesce({{name}}, '') not in ({', '.join(repr(value) for value in values)})",
        f"be {' or '.join([', '.join(values[:-1]), values[-1]])}",
    )


def text(most: int) -> OptionKind:
    return OptionKind(
        "text",
        f"1 … {most} printable characters",
        partial(check_text, most=most),
        "text",
        f"coalesce(length({{name}}), 0) not between 1 and {most}",
        f"be 1 to {most} characters",
    )


def yes_or_no() -> OptionKind:
    """True or False, only for Python."""
    return OptionKind("yes or no", "`True`, `False`", check_bool)


def or_none(kind: OptionKind, means: str) -> OptionKind:
    """The kind, or None with this meaning."""
    return replace(
        kind,
        check=lambda value, name: None if value is None else kind.check(value, name),
        refused=kind.refused.removeprefix("{name} is null or "),
        must=f"{kind.must}; leave it out for {means}",
    )


def only_python(kind: OptionKind) -> OptionKind:
    """The kind, without a column."""
    return replace(kind, sql_type="")


class Option(msgspec.Struct, frozen=True):
    """An option with its default as a caller would write it."""

    name: str
    default: Any
    kind: OptionKind

    @property
    def argument(self) -> str:
        """The argument in a function of SQL."""
        value = self.kind.check(self.default, self.name)
        if value is None:
            shown = "null"
        elif isinstance(value, float):
            shown = f"'{format_interval(value)}'"
        else:
            shown = repr(value)
        return f"{self.name} {self.kind.sql_type} default {shown}"

    @property
    def refusal(self) -> str:
        """The branch of an SQL CASE that says why the value is refused."""
        condition = self.kind.refused.format(name=self.name)
        return f"when {condition} then '{self.name} must {self.kind.must}'"


def option(default: Any, kind: OptionKind, name: str | None = None) -> Any:
    """Declare a field of a class of options. The name of its option defaults to the field's."""
    return field(metadata={"option": (name, default, kind)})


def options_of(of: type) -> dict[str, Option]:
    """Return the options that a class declares, by the names of its fields."""
    found: dict[str, Option] = {}
    for member in fields(of):
        if declared := member.metadata.get("option"):
            name, default, kind = declared
            found[member.name] = Option(name or member.name, default, kind)
    return found
