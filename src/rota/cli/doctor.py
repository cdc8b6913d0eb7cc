"""`rota doctor`: finds problems and says how to fix them."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import cell, console, print_json
from rota.cli.target import JsonOption, Place, find_app
from rota.observe import doctor as doctors
from rota.observe.doctor import Examination, Finding, Level

_STYLES = {Level.BAD: "bold red", Level.WARN: "yellow", Level.SKIPPED: "dim", Level.OK: "green"}
_ORDER = (Level.BAD, Level.WARN, Level.SKIPPED, Level.OK)


def doctor(
    place: Place,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 also if there are only warnings.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find problems and say how to fix them. Changes nothing.

    Checks the database, the schema, the workers and the jobs. Exits 1 if a check is bad.
    """
    owner = find_app(place.app)
    database = place.find_database()
    found = doctors.examine(
        database,
        notify=None if owner is None else owner.notify,
        types=None
        if owner is None
        else [
            {"name": one.name, "queue": one.options.queue, "priority": one.options.priority}
            for one in owner.types.values()
        ],
    )
    counts = {level.value: len(found.at(level)) for level in _ORDER}
    if as_json:
        print_json(
            {
                "counts": counts,
                "checks": [_facts(check, finding) for check, finding in found.findings],
            }
        )
    else:
        _print(found)
        typer.echo(
            f"{len(found.findings)} checks: {counts['bad']} bad, {counts['warn']} warn, "
            f"{counts['skipped']} skipped, {counts['ok']} ok"
        )
    if counts["bad"] or (strict and counts["warn"]):
        raise typer.Exit(1)


def _facts(check: doctors.Check, finding: Finding) -> dict[str, str]:
    return {
        "name": check.name,
        "question": check.question,
        "level": finding.level.value,
        "what": finding.what,
        "what_to_do": finding.what_to_do,
    }


def _print(found: Examination) -> None:
    """Print the findings, the worst first, each with its advice."""
    out = console()
    for level in _ORDER:
        for check, finding in found.at(level):
            line = cell(f"{level.value:<8}{check.name:<13}").copy()
            line.stylize(_STYLES[level], 0, 8)
            out.print(line + cell(" ".join(finding.what.split())), soft_wrap=True)
            if finding.what_to_do:
                out.print(cell(f"{'':<21}→ {' '.join(finding.what_to_do.split())}"), soft_wrap=True)
