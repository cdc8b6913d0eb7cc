"""`python bench/run.py [--quick] [--memory] [--only NAME,…] [--rows N] [--json FILE]`.

Measures on a server of its own, on a disk, prints a table, writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from rich.console import Console

from bench import (
    batches,
    cost,
    drain,
    enqueue,
    fleet,
    hosts,
    idle,
    lanes,
    late,
    old_snapshot,
    one_key,
    outgrow,
    pick_up,
    place,
    quiet,
    search,
    spike,
    webhooks,
)
from bench.figures import STEADY, Figure, readable, table
from bench.reference import MOVED_MAX, measure_speed
from bench.scale import FULL, QUICK, Scale
from bench.server import DurableServer
from rota import errors
from tests.support.guard import forget_databases

PARTS: dict[str, Callable[[DurableServer, Path, Scale], Iterator[Figure]]] = {
    "drain": drain.measure,
    "lanes": lanes.measure,
    "batches": batches.measure,
    "enqueue": enqueue.measure,
    "pick_up": pick_up.measure,
    "cost": cost.measure,
    "idle": idle.measure,
    "spike": spike.measure,
    "search": search.measure,
    "old_snapshot": old_snapshot.measure,
    "late": late.measure,
    "outgrow": outgrow.measure,
    "one_key": one_key.measure,
    "webhooks": webhooks.measure,
    "fleet": fleet.measure,
    "hosts": hosts.measure,
}
ALONE = {"fleet", "hosts"}
"""Only measured if they are named: they take long, or need root."""
FAILURES = (RuntimeError, OSError, psycopg.Error, subprocess.SubprocessError, errors.RotaError)
console = Console(stderr=True, width=None if sys.stderr.isatty() else 160)


class OutOfTime(Exception):
    """The benchmark exceeded its time limit."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description="The benchmark: figures, targets, and whether they were met."
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes: only to see that it works; three minutes at most",
    )
    parser.add_argument("--only", help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="rows of history beside which `search` looks; 10,000,000, or 2,000,000 with --quick",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where to write the JSON; without it, it goes to the standard output",
    )
    place.add_option(parser)
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else [name for name in PARTS if name not in ALONE]
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    forget_databases()
    scale = QUICK if asked.quick else FULL
    if asked.rows is not None:
        scale = replace(scale, search_rows=asked.rows)
    figures: list[Figure] = []
    load = quiet.measure_load()
    facts: dict[str, Any] = {
        "load": str(load),
        "is_comparable": load.is_quiet,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": asked.quick,
    }
    console.print(f"The machine is {load}", highlight=False)
    failed = measure(names, scale, figures, facts, memory=asked.memory)
    document = json.dumps(
        {**facts, "failed": failed, "figures": [figure.as_json() for figure in figures]},
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
    )
    if asked.json is not None:
        asked.json.write_text(document + "\n", encoding="utf-8")
    else:
        print(document)
    console.print(
        table(
            figures,
            f"Rota, {os.cpu_count()} cores shared with the server, {facts['disk']}"
            f"{', QUICK: noise' if asked.quick else ''}; {facts['load']}",
        )
    )
    for name, why in failed.items():
        console.print(f"[red]{name} failed:[/] {why}", highlight=False)
    return 1 if failed else 0


def measure(
    names: list[str],
    scale: Scale,
    figures: list[Figure],
    facts: dict[str, Any],
    *,
    memory: bool,
) -> dict[str, str]:
    """Measure the parts one after the other; return which failed and why.

    The guard stops the server, however this ends. Raises RuntimeError for a place that is not what
    was asked for.
    """
    failed: dict[str, str] = {}
    name = names[0]
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGTERM, _terminate)
    signal.alarm(scale.limit_s)
    try:
        with place.begin_run(memory=memory) as (run, sync):
            console.print(f"The server is {sync}", highlight=False)
            server = DurableServer(run.place)
            server.start()
            facts.update(_machine(), server=server.facts(), disk=str(sync))
            for name in names:
                began = time.monotonic()
                console.print(f"{name} …", style="dim")
                try:
                    _measure_part(name, server, run.place, scale, figures)
                except FAILURES as error:
                    failed[name] = f"{type(error).__name__}: {error}"
                    console.print(f"  {failed[name]}", style="red", highlight=False, markup=False)
                console.print(f"  took {time.monotonic() - began:.0f} s", style="dim")
    except OutOfTime:
        failed[name] = f"not over within the {scale.limit_s} s that the whole benchmark may take"
    finally:
        signal.alarm(0)
    return failed


def _measure_part(
    name: str, server: DurableServer, directory: Path, scale: Scale, figures: list[Figure]
) -> None:
    """Measure a part between two looks at the machine's speed.

    Raises RuntimeError if the machine was not the same after it; then only ratios and counts stay.
    """
    before, first = measure_speed(server), len(figures)
    for figure in PARTS[name](server, directory, scale):
        figures.append(replace(figure, reference=before.as_json()))
        console.print(f"  {figure.name}: {readable(figure.value)} {figure.unit}", highlight=False)
    after = measure_speed(server)
    console.print(f"  beside it {before}", highlight=False)
    if (moved := before.find_move(after)) > MOVED_MAX:
        figures[first:] = [figure for figure in figures[first:] if figure.unit in STEADY]
        raise RuntimeError(
            f"speeds and times REFUSED: the machine moved by {moved:.2f} times meanwhile "
            f"({before}, then {after}): measure on a quiet machine"
        )


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _out_of_time(*_: object) -> NoReturn:
    raise OutOfTime


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
