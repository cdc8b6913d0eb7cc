"""A mail server on the loopback that answers as a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ANSWERS = {"DATA": "354 go on", ".": "250 accepted", "QUIT": "221 bye"}
CLOSES = "CLOSES"
"""Instead of an answer: the server ends the connection."""


@contextmanager
def mailing(answers: Mapping[str, str]) -> Iterator[int]:
    """Serve one connection for a block; yield the port. `answers` names the first word of a line,
    "." after a message, or "" for the greeting."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, {**ANSWERS, **answers}))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # One that nobody came to ends, too.
            with socket.create_connection(listener.getsockname()):
                thread.join()


def _serve(listener: socket.socket, answers: Mapping[str, str]) -> None:
    connection, _ = listener.accept()
    with connection, connection.makefile("rwb") as stream:
        asked = ""
        while (answer := answers.get(asked, "250 ok" if asked else "220 here")) != CLOSES:
            stream.write(f"{answer}\r\n".encode())
            stream.flush()
            is_message = asked == "DATA" and answer.startswith("3")
            line = _read_message(stream) if is_message else stream.readline()
            if not line or asked == "QUIT":
                return
            asked = line.split()[0].decode().upper()


def _read_message(stream: Iterator[bytes]) -> bytes:
    return next((line for line in stream if line == b".\r\n"), b"")
