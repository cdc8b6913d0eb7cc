"""`make nightly`: everything that `make test` leaves out, part by part; `make nightly ONLY=kinds` a
part, or the tests and guards of a folder of tests; `SLICE=7` what CI runs after one of its runs.

CI runs one slice after each change. The number of the commit chooses it, so all of nightly has
passed after as many changes as there are slices.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import environments  # noqa: E402
from scripts.postgres import RELEASES  # noqa: E402

NEWEST = RELEASES[-1]
SHARES = 14
"""Slices over which the tests and the guards are spread: about three minutes on two cores each."""


@dataclass(frozen=True)
class Part:
    """A command."""

    name: str
    command: tuple[str, ...]
    """The arguments of Python; `{place}` is a directory that is there for it."""
    postgres: str | None = None
    """The release of PostgreSQL, if it is not the one of `make test`."""
    python: Path = Path(sys.executable)
    """That of another environment, if it is not `.venv`."""


def run_tests(*arguments: str) -> Part:
    """The tests that `make test` leaves out."""
    return Part("tests", ("-m", "pytest", "-m", "nightly", *arguments))


def try_guards(*arguments: str) -> Part:
    """All guards: without one of them its tests fail."""
    return Part("guards", ("-m", "tests.mutants.run", *(arguments or ("--all",))))


OPTIONAL = ("kinds", "pure", "cli", "telemetry", "dashboard/test_dashboard.py", "test_embedded.py")
"""The tests of what is built on other packages."""
LOWEST = Part(
    "lowest",
    (
        "-m",
        "pytest",
        "-m",
        "",
        "-W",
        "default::DeprecationWarning",
        *(f"tests/{folder}" for folder in OPTIONAL),
    ),
    python=environments.LOWEST / "bin/python",
)
"""The oldest libraries that pyproject.toml allows. Newer ones beside them call them outdated."""
GROW = Part("grow", ("scripts/grow.py",))
CHAOS = Part("chaos", ("-m", "chaos", "--seconds", "60"))


SIM = Part("sim", ("-m", "tests.sim.run", "--seconds", "600"))
"""Worlds of new seeds."""


def soak(hours: float) -> Part:
    """The app of chaos for so long, and what grew."""
    return Part("soak", ("-m", "chaos.soak", "--hours", str(hours), "--report", "{place}/soak"))


POSTGRES = {
    release: Part(f"postgres-{release}", ("-m", "pytest", "tests/store"), release)
    for release in RELEASES
    if release != NEWEST  # which all other parts run on
}
SLICES: list[list[Part]] = [
    *(
        [run_tests("--slice", f"{at}/{SHARES}"), try_guards("--slice", f"{at}/{SHARES}")]
        for at in range(SHARES)
    ),
    [GROW, CHAOS],
    [Part("sim", ("-m", "tests.sim.run", "--seconds", "180"))],
    [POSTGRES["15"], POSTGRES["16"]],
    [POSTGRES["17"]],
    [LOWEST],
    [soak(0.05)],  # the ten minutes of the whole are too long for a slice
]
WHOLE = [run_tests(), try_guards(), GROW, CHAOS, SIM, LOWEST, *POSTGRES.values(), soak(0.17)]


def main() -> int:
    """Run what was asked for; return 1 if a part fails."""
    parser = argparse.ArgumentParser(prog="make nightly")
    parser.add_argument("--only", metavar="PART", help="a part, or a folder of tests")
    parser.add_argument("--slice", type=int, metavar="NUMBER", help="modulo the number of slices")
    asked = parser.parse_args()
    if asked.slice is not None:
        number = asked.slice % len(SLICES)
        print(f"slice {number} of {len(SLICES)}", flush=True)
        return run(SLICES[number])
    return run(WHOLE if asked.only is None else choose(asked.only))


def choose(name: str) -> list[Part]:
    """The part of this name, or the nightly tests and the guards of a folder."""
    if found := [part for part in WHOLE if part.name == name]:
        return found
    folder = ROOT / "tests" / name
    if not folder.exists():
        parts = ", ".join(part.name for part in WHOLE)
        sys.exit(f"there is no part and no folder of tests called {name}; the parts are {parts}")
    return [run_tests(f"tests/{name}"), try_guards("--of", name)]


def run(parts: Iterable[Part]) -> int:
    """Run each part, also after one that failed; print the seconds of each."""
    subprocess.run([sys.executable, "scripts/environments.py"], cwd=ROOT, check=True)
    done: list[str] = []
    failed = False
    for part in parts:
        print(f"\n== {part.name}", flush=True)
        began_at = time.monotonic()
        verdict = run_part(part)
        failed = failed or verdict == "FAILED"
        done.append(f"{time.monotonic() - began_at:5.0f} s  {part.name:12} {verdict}")
    print("", *done, sep="\n", flush=True)
    return 1 if failed else 0


def run_part(part: Part) -> str:
    """Run it on the PostgreSQL that it names; return what became of it."""
    if not part.python.exists():  # environments.py has said why
        return "NOT TRIED"
    environment = dict(os.environ)
    if part.postgres is not None:
        fetched = subprocess.run(
            [sys.executable, "scripts/postgres.py", part.postgres],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if fetched.returncode:  # it has said why
            return "NOT TRIED"
        environment["TEST_POSTGRES"] = fetched.stdout.strip()
    with tempfile.TemporaryDirectory(prefix="rota-nightly-") as place:
        command = [argument.format(place=place) for argument in part.command]
        ran = subprocess.run([part.python, *command], cwd=ROOT, env=environment, check=False)
    return "FAILED" if ran.returncode else "passed"


if __name__ == "__main__":
    sys.exit(main())
