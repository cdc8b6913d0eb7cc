"""`python -m story`: plays the story, and shows each promise with its SELECT."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import textwrap
import threading
import time

import psycopg

import rota
from rota import embedded
from story.figures import Promise
from story.play import play
from story.stage import StoryError
from story.theatre import Theatre


def main() -> int:
    parser = argparse.ArgumentParser(prog="rota demo", description=__doc__)
    parser.add_argument("--cron", action="store_true")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # An exit, so that the processes of the story end with it.
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    out = sys.stderr if asked.json else sys.stdout
    began = time.monotonic()
    given = os.environ.get("ROTA_DATABASE_URL")
    is_private = given in (None, embedded.running())
    kept: list[bool] = []

    def then(found: list[Promise], theatre: Theatre) -> None:
        kept.extend(promise.is_kept for promise in found)
        show(found, round(time.monotonic() - began, 1), as_json=asked.json)
        if asked.open:
            keep_open(theatre)
        elif not asked.json:
            # A private server stops with its last process.
            look = "rota demo --open" if is_private else f"rota web --url '{theatre.url}'"
            print(f"To look at it: {look}")

    try:
        play(lambda line: print(line, file=out, flush=True), then, cron=asked.cron)
    except StoryError as error:
        print(f"rota: {error}", file=sys.stderr)
        return 3
    except (rota.RotaError, psycopg.OperationalError) as error:
        print("rota:", " ".join(str(error).split()), file=sys.stderr)
        return 3
    return 0 if all(kept) else 1


def show(found: list[Promise], took_s: float, *, as_json: bool) -> None:
    kept = sum(promise.is_kept for promise in found)
    if as_json:
        checks = [
            {
                "what": promise.what,
                "select": promise.select,
                "found": promise.found,
                "expected": promise.expected,
                "ok": promise.is_kept,
            }
            for promise in found
        ]
        ok = kept == len(found)
        print(json.dumps({"ok": ok, "took_s": took_s, "checks": checks}, default=str))
        return
    print()
    for promise in found:
        verdict = "ok   " if promise.is_kept else "WRONG"
        expected = "" if promise.is_kept else f", expected {_in_words(promise.expected)}"
        said = f"{verdict}  {promise.what}: {_in_words(promise.found)}{expected}"
        print(textwrap.fill(said, 80, subsequent_indent=" " * 7))
        print(textwrap.indent(textwrap.fill(promise.select, 69), " " * 11))
    print(
        f"\n{kept} of {len(found)} as expected, in {took_s:g} s; "
        "rota_demo, the database, stays until the next"
    )


def _in_words(found: tuple[object, ...]) -> str:
    return ", ".join(map(str, found)) if found else "no row"


def keep_open(theatre: Theatre) -> None:
    """Wait for Ctrl-C, with site, workers and database as they are."""
    print(
        f"\nThe shop is open until Ctrl-C: {theatre.site}/docs\n"
        f"and its jobs: {theatre.site}/admin/jobs/. In another terminal:\n\n"
        f"  export ROTA_DATABASE_URL='{theatre.url}'\n"
        "  rota top\n  rota jobs --status dead\n  rota doctor\n\n"
        "Its clock is behind yours, and stands still."
    )
    stopped = threading.Event()
    try:
        stopped.wait()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
