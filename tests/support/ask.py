"""`python -m rota` or `python -c CODE` for a shell, from the process that forks for the tests:
`python -IS ask.py SOCKET ARGUMENTS`, with the arguments of Python."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys

LENGTH, ANSWER = struct.Struct("I"), struct.Struct("i")  # as in preloaded.py
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main() -> int:
    """Let it run the command on these streams; pass on signals, and return its exit status."""
    address, *command = sys.argv[1:]
    here = os.getcwd()  # noqa: PTH109 - to import pathlib takes longer than all else here
    request = {"command": command, "directory": here, "environment": dict(os.environ)}
    body = json.dumps(request).encode()
    answers, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as control, theirs:
        control.connect(address)
        socket.send_fds(control, [LENGTH.pack(len(body))], [0, 1, 2, theirs.fileno()])
        control.sendall(body)
    pid = ANSWER.unpack(answers.recv(ANSWER.size))[0]
    if not pid:
        os.execv(sys.executable, [sys.executable, *command])
    for number in SIGNALS:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    status = int(ANSWER.unpack(answers.recv(ANSWER.size))[0])
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
