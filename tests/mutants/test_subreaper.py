"""A mutated run leaves no process behind, however it ends."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import psutil
import pytest

from tests.mutants import subreaper
from tests.mutants.mutant import ROOT
from tests.mutants.subreaper import Ended

pytestmark = [
    pytest.mark.waits,
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
]

LONG_S = "60"
ORPHAN = "setsid sleep 300 & echo $!"
"""A line of a shell that starts a process of another session and says its pid."""


def start(limit_s: str, leave_s: str, script: str) -> subprocess.Popen[str]:
    """Start the script under a subreaper."""
    return subprocess.Popen(
        [sys.executable, "-m", subreaper.__name__, limit_s, leave_s, "sh", "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[Ended, int]:
    """Wait for its end; return how the script ended and the pid that it has said."""
    with process:
        assert process.stdout is not None and process.stderr is not None
        told, said = process.stdout.read(), process.stderr.read()
        assert process.wait(30) == 0, said
    return msgspec.json.decode(told, type=Ended), int(said)


def are_orphans(killed: list[str]) -> bool:
    """Whether these are command lines of what a script leaves behind. One may still be about to
    become `sleep`."""
    return bool(killed) and all("sleep 300" in line for line in killed)


def test_an_orphan_of_another_session_is_killed_and_named() -> None:
    ended, orphan = finish(start(LONG_S, "0", f"{ORPHAN}; exit 3"))
    assert (ended.status, ended.is_over_time) == (3, False)
    assert are_orphans(ended.killed)
    assert not psutil.pid_exists(orphan)


def test_an_orphan_that_ends_by_itself_in_time_is_waited_for() -> None:
    ended, orphan = finish(start(LONG_S, LONG_S, "setsid sleep 0.3 & echo $!"))
    assert ended == Ended(status=0, is_over_time=False, killed=[])
    assert not psutil.pid_exists(orphan)


def test_a_run_that_exceeds_its_time_ends_with_all_that_it_started() -> None:
    ended, orphan = finish(start("2", "0", f"{ORPHAN}; sleep 300"))
    assert (ended.status, ended.is_over_time) == (-9, True)
    assert are_orphans(ended.killed)
    assert not psutil.pid_exists(orphan)


def test_a_run_ends_with_the_process_that_asked_for_it() -> None:
    process = start(LONG_S, "0", f"{ORPHAN}; sleep 300")
    assert process.stdin is not None and process.stderr is not None
    orphan = int(process.stderr.readline())
    process.stdin.close()
    with process:
        assert process.wait(30) == 0
    assert not psutil.pid_exists(orphan)
