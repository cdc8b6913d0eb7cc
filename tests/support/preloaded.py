"""A process that has imported Rota and forks for each program that a test starts: the other side of
tests/support/forked.py.

What runs in the fork is what `python -m MODULE` or `python -c CODE` runs, from its first line to
the end of the interpreter. Nothing but the imports comes from here: the fork has its own
descriptors, directory, environment, signals and `__main__`.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn

import rota.cli
from rota.store.statements import Statements

IMPORTED = ("multiprocessing.spawn", "psycopg_pool", "uvloop")
LENGTH = struct.Struct("I")
ANSWER = struct.Struct("i")
"""First the pid, then the exit status as `subprocess.Popen.returncode` has it."""
READ_AT_START = ("PYTHON", "LC_", "LANG")
INTERRUPT = signal.getsignal(signal.SIGINT)
"""Python's handler of Ctrl-C here: none if the caller ignores SIGINT, as `nohup` in the background.
"""
DESCRIPTORS = 4
"""Sent with a request: stdin, stdout, stderr and a socket for the answers."""


def main() -> None:
    """Serve until no process is left to ask. Returns in each fork, ready to be a program."""
    control, shells = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    _warm_up()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever ignores it above these programs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest and the programs
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    gc.collect()
    gc.freeze()  # so that a fork's garbage collector does not copy all of it
    asked: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), shells.fileno(), ended], [], [])
        if ended in ready:
            with suppress(BlockingIOError):
                os.read(ended, 4096)
            _answer_for_ended(asked)
        if control.fileno() in ready:
            request, descriptors = _receive(control)
            if request is None:
                _end(asked, Path(shells.getsockname()).parent)
            if _fork_for(request, descriptors, asked):
                break
        if shells.fileno() in ready:
            with shells.accept()[0] as shell:
                request, descriptors = _receive(shell)
            if request is not None and _fork_for(request, descriptors, asked, is_shell=True):
                break
    control.detach()  # `_become` has closed them
    shells.detach()


def _warm_up() -> None:
    """Do once what each program would do."""
    for module in IMPORTED:
        importlib.import_module(module)
    Statements("rota").read_all()  # each worker does: their texts are cached
    rota.cli.make_cli()  # imports the commands
    with redirect_stdout(io.StringIO()):
        for option in ("--help", "--version"):
            rota.cli.run([option])  # imports what is imported late


def _fork_for(
    request: dict[str, Any],
    descriptors: list[int],
    asked: dict[int, int],
    *,
    is_shell: bool = False,
) -> bool:
    """Fork; return whether this is the fork. A shell with another Python is told to start it."""
    if is_shell and not _is_ours(request["environment"]):
        _answer(descriptors[-1], 0)
        _close(descriptors)
        return False
    if (pid := os.fork()) == 0:
        _become(request, descriptors)
        return True
    *standard, asked[pid] = descriptors
    _close(standard)
    _answer(asked[pid], pid)
    return False


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def find_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python reads before the first line of a program. A fork comes too
    late for other values than its parent's."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _is_ours(environment: Mapping[str, str]) -> bool:
    theirs, ours = find_start(environment), find_start(os.environ)
    places = filter(None, theirs.pop("PYTHONPATH", "").split(os.pathsep))
    ours.pop("PYTHONPATH", None)
    return theirs == ours and set(places) <= set(sys.path)


def _receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    length, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, DESCRIPTORS)
    if not length:
        return None, []
    left = LENGTH.unpack(length)[0]
    body = b""
    while len(body) < left:
        body += control.recv(left - len(body))
    return json.loads(body), descriptors


def _answer_for_ended(asked: dict[int, int]) -> None:
    while asked:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            break
        _answer(asked[pid], os.waitstatus_to_exitcode(status))
        os.close(asked.pop(pid))


def _answer(to: int, what: int) -> None:
    with suppress(OSError):  # no process waits for it any more
        os.write(to, ANSWER.pack(what))


def _end(asked: dict[int, int], place: Path) -> NoReturn:
    """The tests are over, however they ended: what they started and did not stop ends with them,
    and so does the directory of the socket."""
    shutil.rmtree(place, ignore_errors=True)
    for pid in asked:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, INTERRUPT)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None  # it depends on the environment
    _open_streams()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.orig_argv = [sys.executable, *request["command"]]
    _, option, _, *arguments = sys.orig_argv
    sys.argv = [option, *arguments]
    sys.path[0] = str(Path.cwd()) if option == "-m" else ""


def _open_streams() -> None:
    """As Python does at its start: they may be terminals now, or pipes, which cannot seek."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before: io.TextIOWrapper = getattr(sys, name)
        at_once = before.write_through  # PYTHONUNBUFFERED
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
        buffer: Any = raw
        if number == 0:
            buffer = io.BufferedReader(raw)
        elif not at_once:
            buffer = io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            buffer,
            before.encoding,
            before.errors,
            newline="\n" if number else None,
            line_buffering=not at_once and (number == 2 or raw.isatty()),
            write_through=at_once,
        )
        vars(sys).update({name: stream, f"__{name}__": stream})


if __name__ == "__main__":
    main()
    what = sys.orig_argv[2]
    if sys.argv[0] == "-m":
        runpy._run_module_as_main(what)  # type: ignore[attr-defined]  # as Python itself does it
    else:
        exec(compile(what, "<string>", "exec"))
