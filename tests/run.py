"""`make test`: the suite, and a second run of the one or two tests that failed in it.

The tests use real processes and real servers, on a machine that others use too. If the machine
stalls at the wrong moment, a test may fail that passes afterwards. Such a failure has a cause. It
is reported at the end, with the seed of the run, and written to tests/FLAKY.md, where it stays
until its cause is fixed. It does not make the suite red. A test that fails again does, and so do
more failures than chance explains.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

FLAKY = Path(__file__).with_name("FLAKY.md")
FEW, ONE_OF = 3, 500
"""Failures of one run that may be chance: three, or one of so many tests if that is more."""
LOOKS = 3
"""How often a failed test must pass, alone, one run after the other."""
SAID_MAX = 120
"""Characters of what a test said first that are kept."""


class Failed:
    """A plugin of pytest that remembers what failed, and in which order the tests ran."""

    def __init__(self) -> None:
        self.tests: dict[str, str] = {}
        """What each test said when it failed first, in the order of the failures."""
        self.seed: object = None
        self.count = 0
        """How many were called."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.seed = session.config.getoption("randomly_seed", None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call"
        if report.failed:
            self.tests.setdefault(report.nodeid, _said(report))

    @property
    def are_few(self) -> bool:
        """Whether they may be chance."""
        return len(self.tests) <= max(FEW, self.count // ONE_OF)


def main(arguments: list[str], flaky: Path = FLAKY) -> int:
    """Run pytest with these arguments; return its exit status."""
    began_at = time.monotonic()
    failed = Failed()
    status = int(pytest.main(["--durations=15", "--durations-min=5", *arguments], plugins=[failed]))
    is_perhaps_chance = status == pytest.ExitCode.TESTS_FAILED and failed.are_few
    if is_perhaps_chance:
        status = _look_again(list(failed.tests))
    minutes, seconds = divmod(round(time.monotonic() - began_at), 60)
    print(f"\nthe tests took {minutes} min {seconds} s", flush=True)
    if is_perhaps_chance and status == pytest.ExitCode.OK:
        _record_flaky(failed, flaky)
    return status


def _look_again(tests: list[str]) -> int:
    for look in range(1, LOOKS + 1):
        print(f"\nlook {look} of {LOOKS} at what failed: {', '.join(tests)}", flush=True)
        # No mark leaves them out: they were chosen already.
        command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "", *tests]
        again = subprocess.run(command, check=False)
        if again.returncode:
            return again.returncode
    return 0


def _record_flaky(failed: Failed, flaky: Path) -> None:
    today = datetime.now(UTC).date()
    with flaky.open("a", encoding="utf-8") as lines:
        for test, said in failed.tests.items():
            lines.write(f"- {today}, `{test}`, seed {failed.seed}: {said}\n")
            print(f"FAILED ONCE, THEN PASSED {LOOKS} TIMES, SEED {failed.seed}: {test}", flush=True)
    print(f"WRITTEN TO {flaky}: FIND THE CAUSE, MEND IT, THEN REMOVE THE LINE", flush=True)


def _said(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    said = crash.message if crash is not None else report.longreprtext.splitlines()[-1]
    return " ".join(str(said).split())[:SAID_MAX]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
