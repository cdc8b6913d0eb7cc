"""A short chaos run; `make chaos` is a longer one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rules import rule

ROOT = Path(__file__).parents[2]
RUN_S = 20
MOST_S = 420
"""Most of them are the patience of a run on a busy machine."""


@pytest.mark.slow
@pytest.mark.system
@rule("M2", "M31", "M32", "M33", "M52", "M60", "M62", "M63", "M70", "M72")
def test_three_workers_keep_every_promise_through_twenty_seconds_of_chaos(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "chaos",
        "--seconds",
        str(RUN_S),
        "--seed",
        "1",
        "--keep",
        str(tmp_path),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
