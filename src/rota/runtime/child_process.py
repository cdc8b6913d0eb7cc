"""A process and its parent: the start, the channel between them, and the end of either.
`ChildProcess` is the parent's side, `join_parent` the child's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, TextIO

from rota.declare.program import kill_at_hang_up
from rota.embedded import SESSION_VARIABLE
from rota.runtime.procfs import is_alive

GONE_S = 1.0
"""Longest wait for a killed process that is not ours to reap: it may sleep uninterruptibly."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What a terminal or a supervisor sends to every process: held until the child can handle it."""


class Channel:
    """One end of the connection between a parent and its child. A message is any value that
    pickles; messages arrive in order. Send from any thread, receive in one thread. The end of the
    other process ends the channel: EOFError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.has_ended = False
        """Whether nothing more can be received. Written by the receiving thread."""

    def fileno(self) -> int:
        """Return the descriptor, for `select` and for a child that inherits it."""
        return self._connection.fileno()

    def send(self, message: Any) -> None:
        """Send a message. Raises EOFError: the other end is closed."""
        with self._sending:
            try:
                self._connection.send(message)
            except OSError:
                raise EOFError from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next message; None: none arrives in time. Raises EOFError if the other end is
        closed and all messages were received."""
        try:
            return self._connection.recv() if self._connection.poll(timeout_s) else None
        except (EOFError, OSError):
            self.has_ended = True
            raise EOFError from None

    def close(self) -> None:
        self._connection.close()


def is_hang_up_ignored() -> bool:
    """Whether this process was started to outlive its terminal, as by `nohup`."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def join_parent(descriptor: int) -> Channel:
    """Return a child's end of its channel; the child can handle SIGNALS from here on."""
    os.set_inheritable(descriptor, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return Channel(Connection(descriptor))


class ChildProcess:
    """A Python process of this process. Spawned, never forked: a copy of a process with threads may
    hang. It leads a session and a process group: no terminal reaches it, and one signal reaches it
    with its children.

    It starts with `arguments` and, as the last, the descriptor of its end of the channel. When this
    process ends, the channel ends, and the child decides what to do. With `dies_with_parent` the
    kernel kills its group at that moment.

    One thread talks to it and reaps it; any thread may call `kill`.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        stdout: TextIO | None = None,
        dies_with_parent: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._reaping = threading.Lock()
        self._status: int | None = None
        """The exit status. Once it is set, another process may have the pid."""
        ours, theirs = Pipe()
        self.channel = Channel(ours)
        watched, self._lifeline = os.pipe()
        _open.add(self)
        try:
            self._process = _spawn(arguments, theirs.fileno(), watched, stdout, environment)
            self.pid = self._process.pid
            """The number of its process group too."""
            if dies_with_parent:
                kill_at_hang_up(watched, self.pid)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(watched)

    @property
    def has_exited(self) -> bool:
        """Whether it has ended. Its last messages may still be in the channel."""
        return self._status is not None or self._wait(os.WNOHANG)

    def wait_for_exit(self) -> None:
        """Wait for the end of a process that is about to end, at most GONE_S."""
        _wait_until(lambda: self.has_exited)

    def kill(self) -> None:
        with self._reaping:
            if self._status is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end and close the channel; return its exit status, as `Popen` gives it."""
        self._wait(0)
        with self._reaping:
            self._status = self._process.wait()
        self.close()
        return self._status

    def end(self) -> int:
        """Kill its process group, wait until nothing of it is left; return its exit status."""
        if self._status is None:
            self.kill()
            self.reap()
            with suppress(ChildProcessError):  # its own children, if this process is pid 1
                while os.waitpid(-self.pid, 0):
                    pass
            # A next attempt may need the group's memory and files.
            _wait_until(lambda: not is_alive(self.pid))
        assert self._status is not None
        return self._status

    def close(self) -> None:
        """Close the channel and the lifeline: to the child its parent is gone."""
        _open.discard(self)
        self.channel.close()
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def _wait(self, options: int) -> bool:
        """Wait for its end without reaping it: until then the pid is its own."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | options) is not None
        except ChildProcessError:  # the parent ignores SIGCHLD
            return True


_open: set[ChildProcess] = set()
_forking = threading.local()
handled: set[int] = set()
"""The signals for which this process has set handlers while it runs handlers of jobs."""


def _hold_signals() -> None:
    # A signal that came to the copy before its handlers are gone would be lost.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget_parent() -> None:
    for child in list(_open):
        child.close()
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    if handled:
        signal.set_wakeup_fd(-1)
    handled.clear()
    _release_signals()


# A handler may fork this process: the copy keeps no children, and signals end it.
os.register_at_fork(
    before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_parent
)


def find_exited(known: Container[int]) -> int | None:
    """Return the pid of a known child that has ended and was not reaped. Other ended children are
    reaped: as pid 1, this process is the parent of every orphan."""
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in known:
                return found.si_pid
            os.waitpid(found.si_pid, 0)
    return None


def _spawn(
    arguments: list[str],
    channel: int,
    watched: int,
    stdout: TextIO | None,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -X, -W, …
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the child inherits the mask
    try:
        return subprocess.Popen(
            [sys.executable, *flags, *arguments, str(channel)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            start_new_session=True,
            env={SESSION_VARIABLE: str(os.getsid(0)), **os.environ, **environment},
            pass_fds=(channel, watched),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_until(is_so: Callable[[], bool]) -> None:
    until = monotonic() + GONE_S
    while not is_so() and monotonic() < until:
        sleep(0.01)
