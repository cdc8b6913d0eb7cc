"""A failure that does not recur is reported and listed. Any other makes the suite red."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants.mutant import ROOT

LOOK = " at what failed: "
ONCE = """
from pathlib import Path

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
ALWAYS = """
def test_always():
    raise AssertionError
"""
THIRD = """
from pathlib import Path

def test_third():
    Path(f"run {len(list(Path().glob('run *')))}").touch()
    assert len(list(Path().glob("run *"))) not in (1, 3)
"""


def test_what_fails_once_and_never_again_is_reported_and_added_to_the_list(tmp_path: Path) -> None:
    (tmp_path / "FLAKY.md").write_text("before\n")
    days = {datetime.now(UTC).date()}
    status, said = _run(tmp_path, ONCE)
    days.add(datetime.now(UTC).date())
    assert status == 0
    assert "look 3 of 3 at what failed: test_it.py::test_once" in said
    told = said[said.index("the tests took 0 min ") :].splitlines()
    assert told[1] == "FAILED ONCE, THEN PASSED 3 TIMES, SEED 77: test_it.py::test_once"
    assert told[2:] == ["WRITTEN TO FLAKY.md: FIND THE CAUSE, MEND IT, THEN REMOVE THE LINE"]
    first, line = (tmp_path / "FLAKY.md").read_text().splitlines()
    assert first == "before"
    assert line in [f"- {day}, `test_it.py::test_once`, seed 77: assert not True" for day in days]


def test_what_passes_and_what_fails_each_time_is_not_in_the_list(tmp_path: Path) -> None:
    for tests, expected in (("def test_that_passes(): ...", 0), (ALWAYS, 1)):
        status, said = _run(tmp_path, tests)
        assert (status, (tmp_path / "FLAKY.md").exists()) == (expected, False)
        assert re.fullmatch(r"the tests took 0 min \d+ s", said.splitlines()[-1])


def test_what_fails_each_time_is_a_failure(tmp_path: Path) -> None:
    status, said = _run(tmp_path, ONCE + ALWAYS)
    assert (status, said.count(LOOK)) == (1, 1)
    assert "ONCE" not in said


def test_what_fails_now_and_then_is_a_failure(tmp_path: Path) -> None:
    status, said = _run(tmp_path, THIRD)
    assert (status, said.count(LOOK)) == (1, 2)


def test_four_failures_at_once_are_no_chance(tmp_path: Path) -> None:
    status, said = _run(
        tmp_path,
        "".join(ONCE.replace("once", name).replace("seen", name) for name in ("a", "b", "c", "d")),
    )
    assert (status, said.count(LOOK)) == (1, 0)


def test_four_failures_of_two_thousand_tests_may_be_chance(tmp_path: Path) -> None:
    status, said = _run(
        tmp_path,
        "import pytest\n"
        + "".join(ONCE.replace("once", name).replace("seen", name) for name in ("a", "b", "c", "d"))
        + "\n@pytest.mark.parametrize('one', range(1_996))\ndef test_others(one): ...\n",
    )
    assert (status, said.count(LOOK), said.count("FAILED ONCE")) == (0, 3, 4)


def test_tests_that_cannot_be_read_are_a_failure(tmp_path: Path) -> None:
    status, said = _run(tmp_path, "import there_is_none\n")
    assert (status, said.count(LOOK)) == (2, 0)


def test_a_crash_that_does_not_recur_is_reported(tmp_path: Path) -> None:
    status, said = _run(
        tmp_path,
        ONCE.replace("assert not first", "__import__('os')._exit(int(first)) if first else None"),
        processes=1,
    )
    assert status == 0
    assert "\nFAILED ONCE, THEN PASSED 3 TIMES, SEED 77: test_it.py::test_once\n" in said
    line = (tmp_path / "FLAKY.md").read_text()
    assert "`test_it.py::test_once`, seed 77: worker 'gw0' crashed while running" in line


def _run(place: Path, tests: str, processes: int = 0) -> tuple[int, str]:
    few = "-p no:hypothesispytest -p no:asyncio"  # they take long to import
    (place / "pytest.ini").write_text(f"[pytest]\naddopts = {few} -n {processes}\n")
    (place / "test_it.py").write_text(tests)
    command = [sys.executable, "-c", RUN, str(ROOT)]
    ran = subprocess.run(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return ran.returncode, ran.stdout


RUN = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from tests.run import main
sys.exit(main(["--randomly-seed=77"], Path("FLAKY.md")))
"""
