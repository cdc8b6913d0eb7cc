"""`make test`: the suite, and a second look at the test or two that failed in it.

The tests work with real processes and real servers, on a machine that others use too. Where it stands still at the wrong moment a test may fail that
passes ever after. Such a failure has a cause that is worth finding, so it is told at the end, with all that the first look printed; but it is not a
red suite. One is: a test that fails again, and so many failures at once that chance is no explanation.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST = 3
"""Failures of one run that may be chance."""
LOOKS = 3
"""So often what failed has to pass, by itself, one after the other."""


class Failed:
    """A plugin of pytest that remembers what failed: the ids of tests, each once, in the order of their failures."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments; return its exit status."""
    failed = Failed()
    status = int(pytest.main(arguments, plugins=[failed]))
    if status != pytest.ExitCode.TESTS_FAILED or len(failed.tests) > MOST:
        return status
    for look in range(1, LOOKS + 1):
        print(f"\nlook {look} of {LOOKS} at what failed: {', '.join(failed.tests)}", flush=True)
        # No mark leaves them out: they were chosen already.
        again = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", "-m", "", *failed.tests], check=False)
        if again.returncode:
            return again.returncode
    for test in failed.tests:
        print(f"FAILED ONCE, THEN PASSED {LOOKS} TIMES: {test}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
