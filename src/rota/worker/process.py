"""One process of the worker's own: started, spoken to, killed with all that it started."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe
from time import monotonic, sleep
from typing import Any

from rota.errors import ProcessDied
from rota.worker.child import SIGNALS
from rota.worker.groups import is_living
from rota.worker.messages import Importing, Run, Setup, Stop

GONE_S = 1.0
"""How long is waited for the end of a process that was killed and is not ours to wait for; in an uninterruptible sleep it may take for ever."""
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rota.worker.child import main; main(int(sys.argv[2]))"


_open: set[Process] = set()


def _let_go() -> None:
    for process in list(_open):
        process._close()


# A copy of the worker that a handler forks may outlive it: with the other end of a pipe it would keep the processes, which end when that is closed.
os.register_at_fork(after_in_child=_let_go)


class Process:
    """Spawned, never forked: a copy of a process with threads may hang. It leads a session and a process group of its own, so that no
    terminal reaches it and one signal reaches all of it. One thread talks with it; `kill` from any."""

    def __init__(self, setup: Setup, living: set[Process]) -> None:
        self.is_up = False
        """Whether it has come so far that what happens is the application's doing."""
        self.is_ready = False
        """Whether it has imported its handler."""
        self.jobs = 0
        """How many it was given."""
        self._living = living
        self._lock = threading.Lock()
        self._is_killed = False
        self._connection, theirs = Pipe()
        watched, self._lifeline = os.pipe()
        _open.add(self)
        try:
            self._process = _spawn(theirs.fileno(), watched)
            _kill_when_we_are_gone(watched, self._process.pid)
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(watched)
        self.pid = self._process.pid
        """Also the number of its group."""
        living.add(self)
        self.tell(setup)

    @property
    def _has_exited(self) -> bool:
        """Whether it has ended; what it said before may still be there to hear. A program that it started may keep the connection open."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def tell(self, message: Setup | Run | Stop) -> None:
        """Say something. Raises ProcessDied when it has ended; not when it should stop, for what it said before may still be there to hear."""
        if isinstance(message, Run):
            self.jobs += 1
        try:
            self._connection.send(message)
        except OSError:
            if not isinstance(message, Stop):
                raise ProcessDied(self.end()) from None

    def hear(self, for_s: float) -> Any:
        """Return what it said, None when that is nothing within so long. Raises ProcessDied when it has ended."""
        exited = self._has_exited  # before the last look: what it said at the very end counts
        try:
            if self._connection.poll(for_s):
                message = self._connection.recv()
                if not isinstance(message, Importing):
                    return message
                self.is_up = True
                return self.hear(for_s)
        except (EOFError, OSError):
            self._wait_for_exit()
            exited = True
        if exited:
            raise ProcessDied(self.end())
        return None

    def _wait_for_exit(self) -> None:
        """It has closed its connection, so it is about to end: killed before that, it would seem to have been killed by somebody."""
        until = monotonic() + GONE_S
        while not self._has_exited and monotonic() < until:
            sleep(0.01)

    def kill(self) -> None:
        """Kill it and all processes of its group, without waiting for their end."""
        with self._lock:
            if (
                not self._is_killed
            ):  # it is reaped after this only: until then the number is its own
                self._is_killed = True
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill its group, wait until it is gone, and return how it ended."""
        self.kill()
        status = self._process.wait()
        with suppress(
            ChildProcessError
        ):  # where we are process 1, what it had started has become ours to reap
            while os.waitpid(-self.pid, 0):
                pass
        self._wait_for_the_rest()
        self._close()
        self._living.discard(self)
        return _in_words(status)

    def _wait_for_the_rest(self) -> None:
        """What it had started is killed too, but its memory and files are free a little later, and then only a next attempt may need them."""
        until = monotonic() + GONE_S
        while is_living(self.pid) and monotonic() < until:
            sleep(0.01)

    def _close(self) -> None:
        _open.discard(self)
        self._connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _spawn(connection: int, watched: int) -> subprocess.Popen[bytes]:
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -X, -W and their like, as multiprocessing passes them on
    command = [sys.executable, *flags, "-c", _BOOT, json.dumps(sys.path), str(connection)]
    # A supervisor may signal every process it sees. The mask is inherited; the child lifts it once it can ignore these.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,
            start_new_session=True,
            pass_fds=(connection, watched),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_when_we_are_gone(watched: int, group: int) -> None:
    """Let the kernel kill the group when the other end of the pipe is closed, as it is when the worker is killed: also while a handler
    holds the interpreter's lock, and all that it has started with it."""
    fcntl.fcntl(watched, fcntl.F_SETOWN, -group)
    fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)


def _in_words(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was killed by {name}{', as the kernel does when memory runs out' if name == 'SIGKILL' else ''}"
