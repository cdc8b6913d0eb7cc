"""The end of a command's process, whatever threads the application has left in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rules import rule

PROGRAM = """
import atexit, concurrent.futures, sys, threading
from rota import cli
from rota.cli import leaving

never = threading.Event().wait
{left}
sys.argv = {arguments}
cli.main()
"""


def ended(left: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a program that has left something running."""
    program = PROGRAM.format(left=left, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )


@rule("M35", "M2")
@pytest.mark.parametrize(
    "left",
    [
        "threading.Thread(target=never, name='hangs_0').start()",
        "timer = threading.Timer(0, never); timer.name = 'hangs_0'; timer.start()",
        "concurrent.futures.ThreadPoolExecutor(thread_name_prefix='hangs').submit(never)",
        # As a handler does: threads of a daemon are daemons, and are waited for all the same where they belong to a ThreadPoolExecutor.
        "pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix='hangs')\n"
        "thread = threading.Thread(target=pool.submit, args=[never], daemon=True)\n"
        "thread.start(); thread.join()",
    ],
    ids=["a thread", "a timer", "an executor", "an executor used by a daemon"],
)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["rota", "--version"], 0), (["rota", "work", "--for", "5s"], 2)],
    ids=["done", "refused"],
)
def test_a_thread_that_does_not_end_does_not_keep_the_process(
    left: str, arguments: list[str], status: int
) -> None:
    ran = ended(f"leaving.LEAVE_S = 0.1\n{left}", arguments)
    assert ran.returncode == status
    assert "threads that do not end were left behind: hangs_0" in ran.stderr


@rule("M35", "M2")
def test_nor_where_the_command_ends_in_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise ValueError('a fault in the application')\n")
    left = f"sys.path.insert(0, {str(tmp_path)!r})\nleaving.LEAVE_S = 0.1\nthreading.Thread(target=never, name='hangs_0').start()"
    ran = ended(left, ["rota", "work", "--app", "shop:app"])
    assert ran.returncode == 1
    assert "threads that do not end were left behind: hangs_0" in ran.stderr


def test_threads_that_end_are_waited_for_and_then_functions_at_exit_have_their_time() -> None:
    at_exit = """
def waiting():
    return [one for one in threading.enumerate() if isinstance(one, threading.Timer) and not one.finished.is_set()]

atexit.register(lambda: print("at exit", waiting()))
leaving.LEAVE_S = 300.0

def ends():
    while not waiting():
        pass
    print("ended")

threading.Thread(target=ends).start()
"""
    ran = ended(at_exit, ["rota", "--version"])
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[1:] == ["ended", "at exit []"]
