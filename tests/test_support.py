"""What the tests stand on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked

STATE = """
import atexit, json, os, signal, sys, tempfile, threading
from pathlib import Path
atexit.register(print, "at exit")
threading.Timer(0.1, print, ["in a thread"]).start()
print(json.dumps({
    "arguments": (sys.argv, sys.orig_argv),
    "path": sys.path,
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "temporary": tempfile.gettempdir(),
    "descriptors": sorted(os.listdir("/dev/fd")),
    "signals": [str(signal.getsignal(one)).partition(" at ")[0] for one in signal.valid_signals()
                if one not in (signal.SIGHUP, signal.SIGINT)],  # pytest may ignore them
    "streams": [
        (type(one.buffer).__name__, one.encoding, one.errors, one.isatty(), one.seekable())
        + (one.line_buffering, one.write_through)
        for one in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "tests": [name for name in sys.modules if name.partition(".")[0] == "tests"],
    "main": [__name__, vars(sys.modules["__main__"]) is globals()],
}))
sys.exit(7)
"""


@pytest.mark.parametrize("option", ["-m", "-c"])
def test_a_fork_finds_and_ends_as_a_program_that_is_started(option: str, tmp_path: Path) -> None:
    (tmp_path / "state.py").write_text(STATE)
    command = [option, "state" if option == "-m" else STATE, "an argument", "--another"]
    environment = {**os.environ, "OWN": "\udcff", "TMPDIR": str(tmp_path)}
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path}
    fork = forked.run(command, **options)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forked.python(command, text=True, **streams, **options) as process:
        [state, *last] = process.communicate()[0].splitlines()
    assert (fork.returncode, fork.stderr, process.returncode) == (7, "", 7)
    assert fork.stdout.splitlines()[1:] == last == ["in a thread", "at exit"]
    assert json.loads(fork.stdout.splitlines()[0]) == json.loads(state)


def test_a_fork_is_waited_for_and_ended_as_a_process_is(tmp_path: Path) -> None:
    reads = ["-c", "import sys; print('reads', flush=True); sys.stdin.read()"]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    for end, status in (("close", 0), ("terminate", -signal.SIGTERM), ("kill", -signal.SIGKILL)):
        with forked.start(reads, env=os.environ, cwd=tmp_path, **streams) as process:
            assert process.stdout is not None and process.stdout.readline() == "reads\n"
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            getattr(process.stdin if end == "close" else process, end)()
            assert process.wait(60) == process.poll() == status
        process.kill()  # it has ended: no other process is hit
