"""Writes tried.json, which names for each part of a page's blocks a test that runs it:
`python -m tests.docs.tried [tests]`. Without tests it takes all that may read a page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import ROOT, TRIED, list_parts, name_part, read_tried

VARIABLE = "TRIED_BLOCKS"
"""The directory where the processes of a run say what their tests have run."""
TESTS = [
    "tests/docs", "tests/test_demo.py", "tests/worker/test_effects.py", "tests/api/test_logs.py",
    "tests/store/test_search.py", "tests/store/test_shell_worker.py",
    "tests/store/test_sql_contract.py",
]  # fmt: skip


def note(test: str, ran: list[tuple[str, str]]) -> None:
    """Say which parts of which pages a test has run."""
    with Path(os.environ[VARIABLE], f"{os.getpid()}").open("a") as file:
        file.write(json.dumps([test, ran]) + "\n")


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        chosen = sys.argv[1:] or TESTS
        status = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *chosen],
            cwd=ROOT,
            env={**os.environ, VARIABLE: place},
            check=False,
        ).returncode
        lines = [line for file in Path(place).iterdir() for line in file.read_text().splitlines()]
    ran: dict[str, set[tuple[str, str]]] = {}
    for page, tests in read_tried().items() if TRIED.exists() else ():
        for test, names in tests.items():
            ran.setdefault(test, set()).update((page, name) for name in names)
    for line in lines:
        test, found = json.loads(line)
        ran[test] = {(page, name) for page, name in found}
    TRIED.write_text(json.dumps(choose(ran), indent=1, sort_keys=True) + "\n")
    return status


def choose(ran: dict[str, set[tuple[str, str]]]) -> dict[str, dict[str, list[str]]]:
    """Of the tests those that run the most, until each part has one; by page."""
    left = {(block.page, name_part(part)) for block, part in list_parts()}
    chosen: dict[str, dict[str, list[str]]] = {}
    while ran:
        test = min(ran, key=lambda one: (-len(ran[one] & left), one))
        found = ran[test] & left
        if not found:
            break
        left -= found
        for page, name in sorted(found):
            chosen.setdefault(page, {}).setdefault(test, []).append(name)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
