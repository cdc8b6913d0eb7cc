"""`rota demo`: shows each promise on real rows."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import typer

from rota.cli.output import print_json, print_table
from rota.cli.table import Column, Kind
from rota.cli.target import JsonOption

if TYPE_CHECKING:
    from rota.demo.checks import PromiseResult


def demo(as_json: JsonOption = False) -> None:
    """Run real jobs, kill a worker, and show each promise with a SELECT.

    Uses the database of ROTA_DATABASE_URL, otherwise a private one. DROPS the schemas rota_demo and
    rota_demo_app there at its start, then creates them.
    """
    # Imports an App and a web server: no other command should wait for these.
    from rota.demo import scenario  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGHUP):
        # An exit, so that the processes that the demo started end with it.
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    began = time.monotonic()
    checked = scenario.run(lambda line: typer.echo(line, err=as_json))
    took_s = round(time.monotonic() - began, 1)
    is_kept = all(one.is_kept for one in checked)
    if as_json:
        print_json({"ok": is_kept, "took_s": took_s, "checks": [_facts(one) for one in checked]})
    else:
        _print(checked)
        kept = sum(one.is_kept for one in checked)
        typer.echo(
            f"\n{kept} of {len(checked)} as expected, in {took_s:g} s; "
            "the schemas stay until the next demo"
        )
    raise typer.Exit(0 if is_kept else 1)


def _facts(one: PromiseResult) -> dict[str, object]:
    check = one.check
    return {
        "what": check.what,
        "select": check.select,
        "result": one.result,
        "expected": check.expected,
        "ok": one.is_kept,
    }


def _print(checked: list[PromiseResult]) -> None:
    rows = [
        (
            one.check.what,
            one.check.select,
            _in_words(one.result),
            "ok" if one.is_kept else f"WRONG, expected {_in_words(one.check.expected)}",
        )
        for one in checked
    ]
    columns = (
        Column("promise", Kind.TEXT),
        Column("SELECT", Kind.TEXT),
        Column("result", Kind.TEXT),
        Column("", Kind.TEXT),
    )
    print_table(columns, rows, empty="", piped=80)


def _in_words(result: tuple[object, ...]) -> str:
    return ", ".join(map(str, result)) if result else "no row"
