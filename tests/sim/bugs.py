"""`make sim BUG=fence`: builds bugs into copies of this tree, one at a time, and counts the worlds
until the judge sees each: those of bugs.toml, which Rota once had, and missing guards."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutant import GUARDS, ROOT, Mutant, read_mutants

BUGS = "tests/sim/bugs.toml"
AT_ONCE = 2
"""One for each core."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.bugs")
    add = parser.add_argument
    add("--only", default="", metavar="NAME", help="those whose name begins so; else those of old")
    add("--worlds", type=int, default=40, help="how many are tried for each")
    options = parser.parse_args()
    bugs = (
        read_bugs()
        if not options.only
        else [
            mutant
            for mutant in [*read_bugs(), *read_mutants((ROOT / GUARDS).read_text(encoding="utf-8"))]
            if mutant.name.startswith(options.only)
        ]
    )
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = sum(pool.map(lambda bug: try_bug(bug, options.worlds), bugs))
    print(f"{seen} of {len(bugs)} are seen")
    return 0 if seen == len(bugs) else 1


def read_bugs() -> list[Mutant]:
    """The bugs that Rota once had."""
    return read_mutants((ROOT / BUGS).read_text(encoding="utf-8"))


def try_bug(bug: Mutant, worlds: int) -> bool:
    """Print how many worlds went well before one went wrong."""
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rota-sim-") as directory:
        place = Path(directory)
        for name in ("src", "tests", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, place / name)
        path = place / bug.file
        path.write_text(bug.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
        command = ["-m", "tests.sim.run", "--first", "1", "--worlds", str(worlds)]
        done = subprocess.run(
            [sys.executable, "-B", *command],
            cwd=place,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{place}/src:{place}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    found = re.search(r"SEED=(\d+): (.*)", done.stdout)
    what = f"{found[1]:>4} {found[2]}" if found else f"   - {done.stdout.splitlines()[-1:]}"
    print(f"{bug.name:66} {time.monotonic() - began_at:5.0f} s {what[:120]}", flush=True)
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
