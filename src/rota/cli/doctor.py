"""`rota doctor`: finds problems and says how to fix them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.text import Text

from rota.app import App
from rota.cli.flags import flag
from rota.cli.output import clean, lay_beside, print_json, print_lines
from rota.cli.target import JsonOption, Place
from rota.model.units import plural
from rota.observe.doctor.checks import Check, Examination, examine
from rota.observe.doctor.finding import Finding, Level

_STYLES = {Level.BAD: "bold red", Level.WARN: "yellow", Level.SKIPPED: "dim", Level.OK: "green"}
_ORDER = (Level.BAD, Level.WARN, Level.SKIPPED, Level.OK)
"""Order of the printed levels. A consequence is printed below its cause."""
COMPARED = ("queue", "priority", "on_retry", "on_dead", "max_running")
"""Options of a type that stand in the database as they are."""
_LEFT = 21
"""Columns before the text of a finding: its level and the name of its check."""


def doctor(
    place: Place,
    strict: bool = flag("--strict", "Exit 1 even if there are only warnings."),
    everything: bool = flag("--all", "Also print the checks that are ok."),
    as_json: JsonOption = False,
) -> None:
    """Find problems and say how to fix them. Changes nothing.

    Checks the database, the schema, the workers and the jobs. Exits 1 if a check is bad.
    """
    owner, app_failure = place.find_app()
    found = examine(
        place.make_database(owner),
        notify=None if owner is None else owner._notify,
        types=None if owner is None else list_declared(owner),
        app_failure=app_failure,
    )
    counts = {level.value: len(found.at(level)) for level in (*_ORDER, Level.FOLLOWS)}
    if as_json:
        print_json(
            {
                "counts": counts,
                "checks": [describe_finding(check, finding) for check, finding in found.findings],
            }
        )
    else:
        _print(found, _ORDER if everything else _ORDER[:-1])
        typer.echo(f"{plural(counts['ok'], 'check')} ok")
    if counts["bad"] or (strict and counts["warn"]):
        raise typer.Exit(1)


def list_declared(owner: App) -> list[dict[str, Any]]:
    """Return the declarations that doctor compares with the database."""
    return [
        {
            "name": declared.name,
            **{name: getattr(declared.options, name) for name in COMPARED},
            "group_key": declared.group_maker is not None,
            "breaker": None if declared.breaker is None else declared.breaker.name,
        }
        for declared in owner._declarations.types.values()
    ]


def describe_finding(check: Check, finding: Finding) -> dict[str, str | None]:
    return {
        "name": check.name,
        "question": check.question,
        "level": finding.level.value,
        "what": finding.what,
        "what_to_do": finding.what_to_do,
        "follows_from": finding.follows_from,
    }


def _print(found: Examination, levels: Iterable[Level]) -> None:
    """Print the findings of these levels, each with its advice and its consequences. Checks that
    are skipped for one reason are one finding."""
    for level in levels:
        alike: dict[object, list[tuple[Check, Finding]]] = {}
        for pair in found.at(level):
            alike.setdefault(pair[1] if level is Level.SKIPPED else pair[0], []).append(pair)
        for (check, finding), *more in alike.values():
            name = f"{len(more) + 1} checks" if more else check.name
            _print_beside(Text(f"{level.value:<8}", _STYLES[level]), name, finding.what)
            for other, following in found.list_followers(check.name):
                _print_beside(Text(" " * 8), other.name, f"follows: {following.what}")
            if finding.what_to_do:
                _print_beside(Text(" " * 8), "", f"→ {finding.what_to_do}")


def _print_beside(level: Text, name: str, text: str) -> None:
    flat = " ".join(clean(text).split())
    print_lines(lay_beside(level + Text(f"{name:<{_LEFT - 8}}"), flat))
