"""Python programs without the half second that Python needs to import Rota: each is a fork of a
process that has imported it."""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.preloaded import ANSWER, LENGTH, find_start

ROOT = Path(__file__).parents[2]
ENVIRONMENT = dict(os.environ)
"""Of the process that forks: no test has changed it yet."""
RUN_S = 120
"""For one that hangs: `rota demo` takes ten seconds, on a busy machine forty."""
ASK = Path(__file__).with_name("ask.py")


def python(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start Python with this command line, as `-m rota`; the options are those of Popen."""
    return subprocess.Popen([sys.executable, *command], **options)


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    around: Sequence[str] = (),
    **options: Any,
) -> subprocess.Popen[Any]:
    """The same, faster: the command is `-m MODULE` or `-c CODE`, and arguments.

    It is a process like any other, with a pid, streams, signals and an exit status of its own. But
    it is not a child of this process, and the kernel shows another command line for it. Where its
    environment is for another Python, it is started and not forked, and so is what a command
    `around` it runs, as `unshare` does.
    """
    if around:
        return subprocess.Popen([*around, sys.executable, *command], env=env, **options)
    if find_start(env) != find_start(ENVIRONMENT):
        return python(command, env=env, **options)
    return _Forked(command, env=env, **options)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float = RUN_S,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run such a command to its end, without input; return what it printed."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(command, env=env, text=True, **{**streams, **options}) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def ask() -> str:
    """Return what a shell runs in place of Python, before `-m MODULE` or `-c CODE`: a fork as
    well."""
    return shlex.join([sys.executable, "-IS", str(ASK), _forking().address])


def parent() -> int:
    """The process that forks; it is begun here if it was not."""
    return _forking().pid


class _Forked(subprocess.Popen[Any]):
    # Popen has these three methods for POSIX and for Windows; here they are for a third way.

    def _execute_child(self, args: Sequence[str], *options: Any) -> None:
        directory, environment = options[4:6]
        pipes = options[9:15]  # for each stream the end that is read and the end that is written
        request = {
            "command": list(args),
            "directory": os.fspath(directory or Path.cwd()),
            "environment": dict(environment),
        }
        chosen = enumerate((pipes[0], pipes[3], pipes[5]))
        theirs = [number if pipe == -1 else pipe for number, pipe in chosen]  # -1: as ours
        self._answers, answering = socket.socketpair()
        with answering:
            _forking().ask(request, [*theirs, answering.fileno()])
        self.pid = self._answer()
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if lock.acquire(blocking=False):  # else another thread waits: it has not ended
            try:
                self._has_ended(0)
            finally:
                lock.release()
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = self._answer()
            self._answers.close()
        return self.returncode is not None

    def _answer(self) -> int:
        answer = self._answers.recv(ANSWER.size)
        assert answer, "the process that forks for the tests is gone"
        return int(ANSWER.unpack(answer)[0])


class _Forking:
    """The process that forks; it ends with this one, and so does all that it has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self.address = str(Path(tempfile.mkdtemp(prefix="rota-forks-"), "socket"))
        with theirs, socket.socket(socket.AF_UNIX) as shells:
            shells.bind(self.address)
            shells.listen()
            numbers = [theirs.fileno(), shells.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded", *map(str, numbers)],
                cwd=ROOT,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                pass_fds=numbers,
            )
        self.pid = self._process.pid
        atexit.register(self._end)

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        body = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._control, [LENGTH.pack(len(body))], descriptors)
            self._control.sendall(body)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _forking() -> _Forking:
    return _Forking()
