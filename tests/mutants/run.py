"""`make mutants`: removes one guard at a time and checks that its tests fail.

It works in copies of this tree. By default it tries the guards that have changed since the merge
base with the main branch: those whose file, whose tests or whose entry in guards.toml has changed.

A mutant is killed when each of its tests fails. It survives when one passes. It is broken when
something else fails, such as an import or a migration. A run that exceeds its time is no kill
either, because a hang may have any reason.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from random import Random

import psycopg
from psycopg import sql

from tests.mutants import subreaper
from tests.mutants.mutant import GUARDS, ROOT, Mutant, choose_changed, find_base, git, read_mutants
from tests.support.guard import PLACE, Run, stop_servers
from tests.support.server import shared_server

AT_ONCE = 4
"""Mutants under test at the same time, on two cores, because most of a run is waiting.

Each has a PostgreSQL of its own, which the next one gets empty.
"""
A_ROUND = 20
"""Mutants whose tests run together without a mutation, just before they are tried."""
TESTS_S, ROUND_S = 240, 1200
"""Longest run of the tests of a mutant, and of a round."""
TEMPLATE = "rota_template"
"""As tests/conftest.py calls it."""
MADE_ONCE = (
    "src/rota/store/schema/migrations/",
    "src/rota/store/schema/settings/",
    "src/rota/store/migrate.py",
)
"""What changes there does not come to a schema that is made already."""
NO_TESTS = 5
"""The status of pytest when no test is left."""


def main() -> int:
    options = _read_options()
    chosen = _choose(options)
    if options.by:
        chosen = [replace(mutant, tests=[options.by]) for mutant in chosen]
    for mutant in chosen:  # one that no longer applies is reported at once
        mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
    began_at = time.monotonic()
    counts: Counter[str] = Counter()
    with _open_bench("not nightly" if options.quick else "", options.seconds) as bench:
        for at in range(0, len(chosen), A_ROUND):
            counts += bench.try_round(chosen[at : at + A_ROUND])
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"{len(chosen)} guards in {time.monotonic() - began_at:.0f} s: {counted or 'none'}")
    if count := counts["not tried"]:
        print(f"*** TIME WAS OVER: {count} GUARDS WERE NOT TRIED ***")
    return 1 if counts["NOT KILLED"] else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants")
    add = parser.add_argument
    add("--only", metavar="NAME", help="those whose name begins so")
    add("--file", help="those of this file, by its name or the end of its path; names their tests")
    add("--all", action="store_true", help="all, not only those that have changed")
    add("--base", metavar="REV", help="all since this commit counts as the change")
    add("--of", metavar="FOLDER", help="those that a test of this folder of tests/ keeps")
    add("--slice", metavar="K/N", help="of all one of N: 0/20, 1/20, … 19/20")
    add("--seconds", type=float, default=math.inf, help="starts no further one after this time")
    add("--by", metavar="TEST", help="tries this test of each, instead of its own")
    add("--quick", action="store_true", help="without tests that are marked `nightly`")
    return parser.parse_args()


def _choose(options: argparse.Namespace) -> list[Mutant]:
    mutants = read_mutants((ROOT / GUARDS).read_text(encoding="utf-8"))
    if options.only:
        if not (chosen := [mutant for mutant in mutants if mutant.name.startswith(options.only)]):
            sys.exit(f"no guard begins with {options.only!r}: {GUARDS} lists them")
        return chosen
    if options.file:
        return _choose_of_file(mutants, options.file)
    if options.of:
        return [
            mutant
            for mutant in mutants
            if any(t.startswith(f"tests/{options.of}/") for t in mutant.tests)
        ]
    if options.slice:
        first, step = map(int, options.slice.split("/"))
        return mutants[first::step]
    if options.all:
        return mutants
    base = options.base or find_base(ROOT)
    chosen = choose_changed(mutants, ROOT, base)
    print(f"{len(chosen)} of {len(mutants)} guards have changed since {base[:12]}", flush=True)
    # Where the time is short, each commit tries others.
    Random(git(ROOT, "rev-parse", "HEAD")).shuffle(chosen)
    return chosen


def _choose_of_file(mutants: Sequence[Mutant], file: str) -> list[Mutant]:
    """Return the guards of a file. Print their names, and in one line all their tests."""
    chosen = [mutant for mutant in mutants if f"/{mutant.file}".endswith(f"/{file}")]
    if not chosen:
        sys.exit(f"no guard stands in {file}: {GUARDS} lists them")
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(*(mutant.name for mutant in chosen), f"pytest {' '.join(tests)}", sep="\n", flush=True)
    return chosen


@dataclass(frozen=True)
class Bench:
    """Where mutants are tried: a sound copy of the tree, and servers that wait for a mutant."""

    sound: Path
    marks: str
    """What pytest gets as `-m`."""
    until: float
    servers: SimpleQueue[Path] = field(default_factory=SimpleQueue)

    def try_round(self, mutants: Sequence[Mutant]) -> Counter[str]:
        """Return how many of them came to which verdict."""
        if time.monotonic() >= self.until:
            return Counter({"not tried": len(mutants)})
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        with self._take_server(keeps_template=False) as server:
            sound = run_pytest(self.sound, server, ROUND_S, "-n", "2", "-m", self.marks, *tests)
        if sound.error or sound.failed:
            sys.exit(f"they must pass before anything else: {sorted(sound.failed)} {sound.error}")
        able = [
            replace(mutant, tests=[t for t in mutant.tests if t in sound.passed])
            for mutant in mutants
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return Counter(pool.map(self._try_one, able))

    def _try_one(self, mutant: Mutant) -> str:
        began_at = time.monotonic()
        if began_at >= self.until:
            return "not tried"
        if not mutant.tests:
            print(f"{mutant.name:70} LEFT OUT: no test of it runs here", flush=True)
            return "left out"
        # A function is only replaced: a privilege that it has is not given back.
        keeps_template = not mutant.file.startswith(MADE_ONCE) and "revoke" not in mutant.out
        first = ["-x"] if len(mutant.tests) == 1 else []  # of several tests each has to fail
        with (
            self._mutate(mutant) as place,
            self._take_server(keeps_template=keeps_template) as server,
        ):
            arguments = ["-n", "0", "-m", self.marks, *first, *mutant.tests]
            ran = run_pytest(place, server, TESTS_S, *arguments)
        blind = [test for test in mutant.tests if test not in ran.failed]
        wrong = ran.error or (f"SURVIVED {', '.join(blind)}" if blind else None)
        took_s = time.monotonic() - began_at
        print(f"{mutant.name:70} {took_s:4.0f} s  {f'** {wrong}' if wrong else ''}", flush=True)
        return "NOT KILLED" if wrong else "killed"

    @contextmanager
    def _mutate(self, mutant: Mutant) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.sound.parent) as directory:
            # With its times, which its bytecode is checked by.
            place = shutil.copytree(self.sound, Path(directory) / "tree")
            path = place / mutant.file
            path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
            # It goes by size and second, which may be the same.
            for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                bytecode.unlink()
            yield place

    @contextmanager
    def _take_server(self, *, keeps_template: bool) -> Iterator[Path]:
        """Lend a server with nothing of an earlier mutant. If possible the template stays:
        tests/conftest.py migrates it, which replaces the one function whose text differs.
        """
        place = self.servers.get()
        try:
            stop_servers(place, "own-*")
            server = shared_server(place, place / "postgresql.log")
            with psycopg.connect(server.url(), autocommit=True) as admin:
                for (name,) in admin.execute(
                    "select datname from pg_database where not datistemplate and datname <> all "
                    "(array[current_database(), %s])",
                    [TEMPLATE if keeps_template else ""],
                ).fetchall():
                    drop = sql.SQL("drop database {} with (force)")
                    admin.execute(drop.format(sql.Identifier(name)))
            yield place
        finally:
            self.servers.put(place)


@contextmanager
def _open_bench(marks: str, seconds: float) -> Iterator[Bench]:
    """Copy what git knows or would add, as it is in the working tree. What stands in the places of
    the servers goes, however this ends.
    """
    until = time.monotonic() + seconds
    runs = [Run() for _ in range(AT_ONCE)]
    try:
        bench = Bench(runs[0].place / "sound", marks, until)
        listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():  # otherwise it is deleted and not yet committed
                (bench.sound / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, bench.sound / name)
        for run in runs:
            bench.servers.put(run.place)
        yield bench
    finally:
        for run in runs:
            run.end()


@dataclass(frozen=True)
class Ran:
    """What a run of pytest came to. A test counts if one of its cases does."""

    passed: set[str]
    failed: set[str]
    error: str | None
    """Why it says nothing about the tests."""


def run_pytest(place: Path, server: Path, limit_s: float, *arguments: str) -> Ran:
    """Run tests in a copy, in a process of its own. What they leave behind is ended with them."""
    python = [sys.executable, "-m"]
    # "first found": which example is the smallest that fails is not asked, and takes a minute.
    quick = ["-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-profile=first found"]
    # The copy's own code, also in the processes that its tests start, and not what is installed.
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*python, subreaper.__name__, str(limit_s), *python, "pytest", "-rpfE", *quick, *arguments],
        cwd=place,
        env={**others, PLACE: str(server), "PYTHONPATH": str(place / "src")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for `make mutants`
        check=False,
    )
    passed, failed, broken = (
        set(re.findall(rf"^{verdict} ([^\s\[]+)", done.stdout, re.MULTILINE))
        for verdict in ("PASSED", "FAILED", "ERROR")
    )
    error = None
    if done.returncode == subreaper.OVER_TIME:
        error = f"TIMED OUT after {limit_s:g} s"
    # After a failure something may go wrong in clearing up, too.
    elif done.returncode not in (0, 1, NO_TESTS) or (broken and not failed):
        error = "BROKEN\n" + "\n".join(done.stdout.splitlines()[-15:])
    return Ran(passed, failed, error)


if __name__ == "__main__":
    sys.exit(main())
