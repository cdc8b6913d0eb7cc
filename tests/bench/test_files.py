"""Each file of the benchmarks still works: they are run by hand, and seldom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from bench import run
from bench.figures import Figure
from bench.place import IN_MEMORY
from bench.scale import Scale
from tests.docs.reader import ROOT
from tests.support import forked
from tests.support.guard import in_memory

pytestmark = [pytest.mark.nightly, pytest.mark.system]

BENCH = ROOT / "bench"
TINY = Scale(
    jobs=800,
    rounds=1,
    without_s=2,
    snapshot_s=3,
    steady_s=4,
    window_s=1,
    enqueue_s=0.2,
    pick_up_s=0.2,
    cost_jobs=2_000,
    idle_s=1,
    sparse_jobs=1,
    spike_jobs=2_000,
    spike_work=2_000,
    spike_rounds=1,
    spike_claims=20,
    search_rows=20_000,
    limit_s=150,
)


in_this_memory = pytest.mark.skipif(
    in_memory() is None, reason="NO ROOM IN MEMORY: no benchmark is run"
)
"""Commits on a disk would take the time, and a machine may have none that waits."""


@in_this_memory
@pytest.mark.parametrize("part", ["drain", "enqueue", "cost"])
def test_a_part_is_measured(part: str) -> None:
    """Longer parts are left out; the checker of types reads all."""
    figures: list[Figure] = []
    facts: dict[str, Any] = {}
    failed = run.measure([part], TINY, figures, facts, memory=True)
    assert {name for name, why in failed.items() if "REFUSED" not in why} == set(), failed
    assert facts["disk"].startswith(IN_MEMORY)
    assert figures, "also on a busy machine, ratios and counts stay"


@in_this_memory
@pytest.mark.parametrize(
    "command",
    [["timeline.py", "--jobs", "2000"], ["pairs.py", "src", "--pairs", "1", "--jobs", "1000"]],
)
def test_each_command_beside_the_parts_measures(command: list[str]) -> None:
    name, *options = command
    command = [sys.executable, str(BENCH / name), *options, "--memory"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_file_in_python_can_be_imported() -> None:
    names = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted(BENCH.rglob("*.py"))
        # A site of Django is run in an environment of its own, and __main__ at once.
        if not {"django_site", "node_modules"} & set(file.parts) and file.stem != "__main__"
    ]
    assert len(names) > 50
    code = f"from importlib import import_module\nfor name in {names}:\n    import_module(name)"
    done = forked.run(["-c", code], env=os.environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="NO node: no file in JavaScript is read")
def test_each_file_in_javascript_can_be_read() -> None:
    for file in (*BENCH.glob("*.cjs"), *BENCH.glob("peers/**/*.cjs")):
        done = subprocess.run(
            ["node", "--check", file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
