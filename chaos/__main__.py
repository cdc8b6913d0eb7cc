"""`python -m chaos [--seconds N] [--seed N] [--keep DIRECTORY]`.

Prints the figures and PASS or FAIL; exits with status 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from chaos.judge import CHECKS, SHOWN
from chaos.run import Verdict, run
from tests.support.guard import Run, forget_databases

SECONDS, SEED = 120, 1
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Three workers under everything that happens in production."
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"how long the harm goes on; {SECONDS} unless given",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"decides what is done to whom; {SEED} unless given"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="copy the logs of the server and the workers there",
    )
    asked = parser.parse_args()
    forget_databases()
    # That connections break is what this is about.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, _terminate)
    console.print(f"chaos: {asked.seconds:g} s, SEED={asked.seed}")
    guarded = Run()
    try:
        verdict = run(guarded.place, asked.seconds, asked.seed)
        return _say(verdict, asked.seed)
    finally:
        if asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
            for log in guarded.place.glob("*.log"):
                shutil.copy(log, asked.keep)
        guarded.end()


def _say(verdict: Verdict, seed: int) -> int:
    table = Table("what", "figure", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, figure in verdict.figures:
        table.add_row(name, figure)
    console.print(table)
    broken = {promise.check: promise.rows for promise in verdict.broken}
    for check in CHECKS:
        rows = broken.get(check, [])
        console.print(
            f"{'BROKEN' if rows else 'held':6}  "
            f"{check.what}{f': {len(rows):,} rows' if rows else ''}",
            markup=False,
        )
        for row in rows[:SHOWN]:
            console.print(
                "        " + ", ".join(f"{name} {value}" for name, value in row.items()),
                markup=False,
            )
    for job, lines in verdict.timelines.items():
        console.print(f"\njob {job}", *lines, sep="\n", markup=False)
    console.print(
        f"{'FAIL' if broken else 'PASS'}: {len(CHECKS) - len(broken)} of {len(CHECKS)} promises "
        f"held, SEED={seed}"
    )
    return 1 if broken else 0


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
