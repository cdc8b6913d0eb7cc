"""A program as a job: it runs in a process group of its own, and never outlives its attempt."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from rota.errors import ProgramFailed, UsageError
from rota.model.outcome import Dead, Snooze
from rota.model.scrub import scrub

STOP_S = 0.8
"""Seconds from SIGTERM to SIGKILL. An async handler has one second to stop (ASYNC_STOP_S)."""
OUTPUT_BYTES_MAX = 4096
"""The length of the output's end that is kept."""
READ_BYTES = 65_536
UNSTARTED = "10s"
"""Until the next try when the machine has no process, memory or descriptor left."""
_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""The errors of such a machine."""

ProgramHandler = Callable[[], Coroutine[Any, Any, dict[str, Any]]]


def make_handler(program: str | Sequence[str]) -> ProgramHandler:
    """Return the handler that runs a program. Raises UsageError for unfit words."""
    arguments = split_program(program)

    async def handler() -> dict[str, Any]:
        return await run_program(arguments)

    handler.__doc__ = f"Run `{shlex.join(arguments)}`."
    return handler


def split_program(program: str | Sequence[str]) -> list[str]:
    """Return a program with its arguments; a text is split as a shell would, and no shell runs.
    Raises UsageError: there is no word, a quote is open, or a word is no text without NUL."""
    try:
        words = shlex.split(program) if isinstance(program, str) else list(program)
    except ValueError as error:
        raise UsageError(f"program: {error}, in {program!r}") from None
    except TypeError:
        words = []
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise UsageError(
            f'program must be a text such as "pg_dump shop", or a list of texts, not {program!r}'
        )
    if any("\0" in word for word in words):
        raise UsageError("program: an argument of a program cannot hold a NUL character")
    return words


async def run_program(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a program until it has ended and its output is closed; return its exit status 0 and the
    end of its output.

    If the attempt is cancelled, the process group gets SIGTERM and, STOP_S later or at a second
    cancel, SIGKILL. What the program leaves running in its group is killed in any case.

    Raises:
        ProgramFailed: the program exited with another status, or was killed.
        Dead: the program is missing, or cannot be executed.
        Snooze: the machine cannot start a process now.
    """
    try:
        program = Program(arguments)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise Snooze(UNSTARTED, reason=f"cannot start a process: {error.strerror}") from None
        raise Dead(f"cannot run {arguments[0]!r}") from error
    try:
        await program.wait()
    except asyncio.CancelledError:
        await program.stop()
        raise
    finally:
        await program.end()
    output = program.read_output()
    if program.exit_status != 0:
        raise ProgramFailed(arguments[0], describe_exit(program.exit_status), output)
    return {"exit_status": 0, "output": output}


class Program:
    """A running program. All but the wait for its exit is on the loop that made it.

    The program and what it starts share a process group, unless they leave it as daemons do. On
    Linux the kernel kills that group when this process is gone, however it ended.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        """Raises OSError if the program cannot be started."""
        self.exit_status: int | None = None
        """As `Popen` gives it. None until `end`, and always if this process ignores SIGCHLD: the
        kernel keeps no status then."""
        self._knows_status = True
        self._loop = asyncio.get_running_loop()
        self._has_exited = asyncio.Event()
        self._is_silent = asyncio.Event()
        self._tail = bytearray()
        self._is_cut = False
        self._output, theirs = os.pipe()
        watched, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                pass_fds=(watched,),
            )
            with suppress(ProcessLookupError):  # it has ended, and SIGCHLD is ignored
                kill_at_hang_up(watched, self._process.pid)
            threading.Thread(target=self._watch, name="rota-program", daemon=True).start()
        except BaseException:
            self._close()  # from here on Linux kills a program that had started
            raise
        finally:
            os.close(theirs)
            os.close(watched)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read)

    async def wait(self) -> None:
        """Wait until the program has exited, and nothing of its group can write any more."""
        await self._has_exited.wait()
        await self._is_silent.wait()

    async def stop(self) -> None:
        """Ask the group to end, and wait for at most STOP_S."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), STOP_S)

    async def end(self) -> None:
        """Kill the rest of the group, and reap the program."""
        self._signal(signal.SIGKILL)
        try:
            await self._has_exited.wait()
            self._read()
            self._reap()
        finally:
            self._loop.remove_reader(self._output)
            self._close()

    def read_output(self) -> str:
        """Return the end of the output as text that can be stored, with a mark where it was cut."""
        tail = bytes(self._tail)
        if self._is_cut:
            tail = "…".encode() + tail.lstrip(bytes(range(0x80, 0xC0)))  # not within a character
        return scrub(tail.decode(errors="replace").replace("\0", "\ufffd"))

    def _read(self) -> None:
        try:
            while data := os.read(self._output, READ_BYTES):
                self._tail += data
                if len(self._tail) > OUTPUT_BYTES_MAX:
                    del self._tail[:-OUTPUT_BYTES_MAX]
                    self._is_cut = True
                if len(data) == READ_BYTES:
                    return  # a flood must leave the loop to others
        except BlockingIOError:
            return
        self._loop.remove_reader(self._output)
        self._is_silent.set()

    def _watch(self) -> None:
        """Wait for the exit in a thread without reaping, so that the process id stays its own."""
        try:
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self._knows_status = False
        with suppress(RuntimeError):  # the loop is closed: the worker has ended
            self._loop.call_soon_threadsafe(self._has_exited.set)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it is gone, or another user's
            os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        status = self._process.wait()
        self.exit_status = status if self._knows_status else None
        with suppress(ChildProcessError):  # its own children, if this process is pid 1
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass

    def _close(self) -> None:
        os.close(self._output)
        os.close(self._lifeline)


def describe_exit(status: int | None) -> str:
    """Return an exit status in words: "was killed by SIGSEGV"."""
    if status is None:
        return "has ended, and its exit status is unknown: the worker was started ignoring SIGCHLD"
    if status >= 0:
        return f"exited with status {status}"
    known = -status in set(signal.Signals)
    name = signal.Signals(-status).name if known else f"signal {-status}"
    cause = ", as the kernel does when memory runs out" if status == -signal.SIGKILL else ""
    return f"was killed by {name}{cause}"


def kill_at_hang_up(watched: int, group: int) -> None:
    """Let the kernel kill a group when the other end of a pipe closes, as at this process's end.
    Does nothing without Linux."""
    if sys.platform == "linux":
        fcntl.fcntl(watched, fcntl.F_SETOWN, -group)
        fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)
