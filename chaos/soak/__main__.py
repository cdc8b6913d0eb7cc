"""`python -m chaos.soak [--hours N] [--rate N] [--seed N] [--report PATH] [--keep DIRECTORY]`.

Prints the page of the report; exits with status 1 if a job was lost or doubled, another promise was
broken, or something grows beyond its bound. Ctrl-C ends it with the report so far.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from chaos.soak.pace import Pace
from chaos.soak.report import write
from chaos.soak.run import RATE, Asked, soak
from tests.support.guard import Run, forget_databases

ROOT = Path(__file__).resolve().parents[2]
HOURS = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make soak", description="Two workers, every feature, kills and deploys, for hours."
    )
    parser.add_argument("--hours", type=float, default=HOURS, help=f"{HOURS:g} unless given")
    parser.add_argument("--rate", type=float, default=RATE, help=f"jobs a second; {RATE:g}")
    parser.add_argument("--seed", type=int, default=1, help="decides what is enqueued and done")
    parser.add_argument(
        "--report", type=Path, help="where; bench/results/soak-HOURSh unless given", metavar="PATH"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIRECTORY", help="copy the logs of the processes there"
    )
    asked = parser.parse_args()
    report = asked.report or ROOT / "bench" / "results" / f"soak-{asked.hours:g}h"
    forget_databases()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # workers are killed
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(stop))
    say = partial(print, flush=True)
    guarded = Run()
    try:
        found = soak(
            guarded.place,
            Asked(Pace(3600 * asked.hours), asked.seed, asked.rate),
            stop,
            say,
            lambda so_far: say(_line(len(so_far.rounds), write(so_far, report).complaints)),
        )
        complaints = write(found, report).complaints
        print(report.with_name(report.name + ".md").read_text())
        print(f"report: {report}.json, {report}.md")
        return 1 if complaints else 0
    finally:
        if asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
            for log in guarded.place.glob("*.log"):
                shutil.copy(log, asked.keep)
        guarded.end()


def _line(rounds: int, complaints: list[str]) -> str:
    return f"round {rounds}: {'; '.join(complaints) or 'all is well'}"


def _end(stop: threading.Event) -> None:
    """End it with the report so far; at the second time at once."""
    if stop.is_set():
        raise KeyboardInterrupt
    stop.set()
    print("ending: the last round is brought to rest and judged", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
