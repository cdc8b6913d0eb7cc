"""`make mutants`: removes one guard at a time and checks that its tests fail.

It works in a copy of this tree. By default it tries the guards that have changed since the merge
base with the main branch: those whose file, whose tests or whose entry in guards.toml has changed.
ALL=1 tries all of them.

A mutant is killed when each of its tests fails. It survives when one passes. It is broken when
something else fails, such as an import or a migration. A run that exceeds its time is no kill
either, because a hang may have any reason. The processes that a run leaves behind are ended, and
named below its mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

import msgspec
import psycopg
from psycopg import sql

from tests.mutants import subreaper
from tests.mutants.changed import choose_changed, draw, find_base, find_head
from tests.mutants.mutant import ROOT, Mutant, mutants
from tests.mutants.subreaper import LEAVE_S
from tests.support.guard import PLACE, Run, stop_servers
from tests.support.server import shared_server

AT_ONCE = 4
"""Mutants under test at the same time, on two cores, because most of a run is waiting.

Each has a PostgreSQL of its own, which the next one gets empty.
"""
TESTS_S, SUITE_S = 240, 1200
"""Longest run of a mutant's own tests, and of the whole suite."""
TWO_PROCESSES = ("-n", "2")
FIRST_FOUND = "first found"
"""The settings of hypothesis here, as tests/conftest.py has them: which example is the smallest
that fails is not asked, and takes a minute.
"""
TEMPLATE = "rota_template"
"""As tests/conftest.py calls it."""
MADE_ONCE = (
    "src/rota/store/schema/migrations/",
    "src/rota/store/schema/settings/",
    "src/rota/store/migrate.py",
)
"""What changed there does not come to a schema that is made already."""
ABOUT_THE_TEXT = (
    "--ignore=tests/mutants",
    "--deselect=tests/store/test_schema.py::test_the_schema_is_the_one_in_the_snapshot",
)
"""Left out of the whole suite: they see that a line has changed, whatever it does."""


@dataclass(frozen=True)
class Ran:
    """What a run of pytest came to."""

    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    error: str | None = None
    """Why it says nothing about the tests."""
    said: str = ""
    """What it printed."""
    left_behind: tuple[str, ...] = ()
    """The command lines of its processes that had to be killed afterwards."""


def main() -> int:
    options = _options()
    chosen = _choose(options)
    if not chosen:
        return 0
    for mutant in chosen:
        # A mutant that no longer applies is reported at once.
        mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
    began_at = time.monotonic()
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(
        "the whole suite" if options.full else f"{len(tests)} tests",
        "without any mutation …",
        flush=True,
    )
    with _servers() as places, copy(ROOT, _known_to_git(), places[0]) as sound:
        ran = pytest(
            sound, *(ABOUT_THE_TEXT if options.full else tests), *TWO_PROCESSES, limit_s=SUITE_S
        )
        failed = sorted(ran.failed)
        if failed and not ran.error:  # beside others on a busy machine a test may run out of time
            failed = sorted(pytest(sound, *failed, limit_s=SUITE_S).failed)
        absent = [test for test in tests if not _cases(test, ran.passed | ran.failed | ran.skipped)]
        if ran.error or failed or absent:
            print(
                f"{ran.said}\nthey must pass before anything else: "
                f"{ran.error or ', '.join([*failed, *absent])}"
            )
            return 1
        left_out = [
            one
            for one in chosen
            if not all(_cases(test, ran.passed | ran.failed) for test in one.tests)
        ]
        for mutant in left_out:
            print(f"{mutant.name:38} LEFT OUT: its test is skipped here")
            chosen.remove(mutant)
        bench = Bench(sound, SimpleQueue())
        for place in places:
            bench.servers.put(place)
        test_one = bench.against_the_suite if options.full else bench.against_its_tests
        with ThreadPoolExecutor(1 if options.full else AT_ONCE) as pool:
            killed = list(pool.map(lambda mutant: _print_verdict(mutant, test_one), chosen))
    print(
        f"{sum(killed)} of {len(killed)} mutants killed in {time.monotonic() - began_at:.0f} s, "
        f"{len(left_out)} left out"
    )
    return 0 if killed and all(killed) else 1


def _choose(options: argparse.Namespace) -> list[Mutant]:
    if options.only:
        chosen = [one for one in mutants() if one.name.startswith(options.only)]
        if not chosen:
            sys.exit(
                f"no mutant begins with {options.only!r}: tests/mutants/guards.toml lists them"
            )
    elif options.all or options.full:
        chosen = mutants()
    else:
        base = options.base or find_base(ROOT)
        chosen = choose_changed(mutants(), ROOT, base)
        print(
            f"{len(chosen)} of {len(mutants())} guards have changed since {base[:12]}", flush=True
        )
    if options.most is not None and len(chosen) > options.most:
        print(f"A SAMPLE OF {options.most} OF THEM: each commit draws another", flush=True)
        chosen = draw(chosen, options.most, find_head(ROOT))
    return chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--only", metavar="NAME", help="those only whose name begins so")
    parser.add_argument(
        "--all", action="store_true", help="all mutants, not only those that have changed"
    )
    parser.add_argument(
        "--base", metavar="REV", help="what counts as changed is all since this commit"
    )
    parser.add_argument(
        "--most", metavar="N", type=int, help="a sample of so many, if more are chosen"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the whole suite against each, not only the tests that it names",
    )
    return parser.parse_args()


def _print_verdict(mutant: Mutant, test_one: Callable[[Mutant], tuple[bool, str]]) -> bool:
    began_at = time.monotonic()
    is_killed, verdict = test_one(mutant)
    # What ran out of time on a busy machine has another try; a guard that no test misses survives
    # that, too.
    if not is_killed:
        is_killed, verdict = test_one(mutant)
    print(
        f"{mutant.name:38} {time.monotonic() - began_at:4.0f} s  "
        f"{'' if is_killed else '** '}{verdict}",
        flush=True,
    )
    return is_killed


@dataclass(frozen=True)
class Bench:
    """Where mutants are tried: a copy of the tree that has passed, with its bytecode, and servers
    that wait for their next mutant.
    """

    sound: Path
    servers: SimpleQueue[Path]

    def against_its_tests(self, mutant: Mutant) -> tuple[bool, str]:
        # Nor is a privilege revoked again from a function that is only replaced.
        keeps_template = not mutant.file.startswith(MADE_ONCE) and not mutant.line.startswith(
            "revoke"
        )
        with self._mutated(mutant) as place, self._server(keeps_template=keeps_template) as server:
            # With one test the first of its cases that fails is enough; of several each has to
            # fail.
            ran = pytest(
                place,
                *mutant.tests,
                *(["-x"] if len(mutant.tests) == 1 else []),
                limit_s=TESTS_S,
                server=server,
            )
        blind = [test for test in mutant.tests if not _cases(test, ran.failed)]
        is_killed = not ran.error and not blind
        tests = ", ".join(_short(test) for test in mutant.tests)
        verdict = ran.error or (f"SURVIVED {', '.join(blind)}" if blind else f"killed by {tests}")
        return is_killed, verdict + _list_left_behind(ran)

    def against_the_suite(self, mutant: Mutant) -> tuple[bool, str]:
        with self._mutated(mutant) as place:
            ran = pytest(place, *ABOUT_THE_TEXT, *TWO_PROCESSES, "-x", limit_s=SUITE_S)
        tests = ", ".join(_short(test) for test in sorted(ran.failed))
        verdict = f"killed by {tests}" if tests else ran.error or "SURVIVED the whole suite"
        return bool(tests), verdict + _list_left_behind(ran)

    @contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[Path]:
        with copy(self.sound, _files(self.sound), self.sound.parent) as place:
            path = place / mutant.file
            path.write_text(mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
            # It goes by size and second, which may be the same.
            for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                bytecode.unlink()
            yield place

    @contextmanager
    def _server(self, *, keeps_template: bool) -> Iterator[Path]:
        place = self.servers.get()
        try:
            _empty(place, keeps_template=keeps_template)
            yield place
        finally:
            self.servers.put(place)


@contextmanager
def _servers() -> Iterator[list[Path]]:
    """The place of one for each mutant at work, started by the first that needs it.

    What is in such a place goes, however this ends.
    """
    runs = [Run() for _ in range(AT_ONCE)]
    try:
        yield [run.place for run in runs]
    finally:
        for run in runs:
            run.end()


def _empty(place: Path, *, keeps_template: bool) -> None:
    """Leave nothing of one mutant to the next.

    Every database is dropped, with its connections, and so are the tests' own servers. The template
    stays if possible: tests/conftest.py migrates it, which replaces the one function whose text
    differs in this tree.
    """
    stop_servers(place, "own-*")
    server = shared_server(place, place / "postgresql.log")
    with psycopg.connect(server.url(), autocommit=True) as admin:
        for (name,) in admin.execute(
            "select datname from pg_database where not datistemplate and datname <> all "
            "(array[current_database(), %s])",
            [TEMPLATE if keeps_template else ""],
        ).fetchall():
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _cases(test: str, among: frozenset[str]) -> list[str]:
    """The cases of a test, or the one that it names."""
    return [one for one in among if one == test or one.startswith(f"{test}[")]


def _short(test: str) -> str:
    return test.partition("::")[2]


def _list_left_behind(ran: Ran) -> str:
    return "".join(f"\n    left behind, and killed: {line}" for line in ran.left_behind)


@contextmanager
def copy(root: Path, names: list[str], beside: Path) -> Iterator[Path]:
    """Copy files of a tree, with their times, which their bytecode is checked by."""
    # A process that a failed test has left behind may still write there: what cannot be removed now
    # goes with the servers' place.
    with tempfile.TemporaryDirectory(
        prefix="rota-mutant-", dir=beside, ignore_cleanup_errors=True
    ) as directory:
        place = Path(directory)
        for folder in {(place / name).parent for name in names}:
            folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy2(root / name, place / name)
        yield place


def _known_to_git() -> list[str]:
    """What git knows or would add, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    # Otherwise it was deleted and not yet committed.
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def _files(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def pytest(
    place: Path,
    *arguments: str,
    limit_s: float,
    server: Path | None = None,
    leave_s: float = LEAVE_S,
) -> Ran:
    """Run tests in a copy, in a process of its own. What they leave behind is ended with them,
    after `leave_s` by force."""
    report = place / "report.xml"
    report.unlink(missing_ok=True)  # that of the tree without a mutation
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    tests += ["-p", "no:randomly", f"--junit-xml={report}", f"--hypothesis-profile={FIRST_FOUND}"]
    around = [sys.executable, "-m", subreaper.__name__, str(limit_s), str(leave_s)]
    read, lifeline = os.pipe()  # as long as it is open, this process is there
    with os.fdopen(lifeline, "wb"), os.fdopen(read, "rb") as stdin:
        done = subprocess.run(
            [*around, *tests, *arguments],
            cwd=place,
            env=_environment(place, server),
            stdin=stdin,
            capture_output=True,
            text=True,
            # Ctrl-C is for `make mutants`, which lets this run end.
            start_new_session=True,
            check=False,
        )
    if done.returncode != 0:
        return Ran(error=f"BROKEN: its subreaper exited with {done.returncode}\n{done.stderr}")
    ended = msgspec.json.decode(done.stdout, type=subreaper.Ended)
    if ended.is_over_time:
        ran = Ran(error=f"TIMED OUT after {limit_s:g} s")
    else:
        ran = _read(report, ended.status, done.stderr)
    return replace(ran, left_behind=tuple(ended.killed))


def _environment(place: Path, server: Path | None) -> dict[str, str]:
    """The copy's own code, also in the processes that its tests start, and not what is installed;
    its bytecode is kept beside it.
    """
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**others, **({PLACE: str(server)} if server else {}), "PYTHONPATH": str(place / "src")}


def _read(report: Path, status: int, said: str) -> Ran:
    last = "\n".join(said.strip().splitlines()[-15:])
    if status not in (0, 1) or not report.exists():
        return Ran(error=f"BROKEN: pytest exited with {status}\n{last}", said=said)
    passed: set[str] = set()
    failed: set[str] = set()
    errors: set[str] = set()
    skipped: set[str] = set()
    kinds = {"failure": failed, "error": errors, "skipped": skipped}
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        next((kind for name, kind in kinds.items() if case.find(name) is not None), passed).add(
            test
        )
    if errors and not failed:  # after a failure something may go wrong in clearing up, too
        return Ran(error=f"BROKEN: {', '.join(sorted(errors))} could not be run\n{last}", said=said)
    return Ran(frozenset(passed), frozenset(failed), frozenset(skipped), said=said)


if __name__ == "__main__":
    sys.exit(main())
