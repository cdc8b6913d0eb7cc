"""stdout and stderr as they are found: in an encoding that lacks signs, or on a disk that is full."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import TextIO

_ESCAPE = "rota.escape"
_STDOUT = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def escape_what_does_not_fit() -> None:
    """Let stdout and stderr take each sign: one that their encoding lacks becomes `\\xb7` or `\\u2192`, and what is no text in a path the bytes that it
    was. Else a command whose job was done would end with a UnicodeEncodeError, for an arrow or for a customer's name."""
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)


def is_of_stdout(error: Exception) -> bool:
    """Whether it says that stdout takes nothing more: then it does not take the end of a line either."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return False
    try:
        os.write(_STDOUT, b"\n")
    except OSError:
        return True
    return False


def unwritten(stream: TextIO | None) -> OSError | None:
    """Return why the rest of a stream cannot be written, after throwing it away: Python would try again at its end, and exit with 120. None: it is
    written."""
    if stream is None or stream.closed:
        return None
    try:
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return error
    return None


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = UnicodeEncodeError(
        error.encoding, error.object, error.start, error.start + 1, error.reason
    )
    try:
        return codecs.lookup_error("surrogateescape")(first)
    except UnicodeEncodeError:
        return codecs.backslashreplace_errors(first)
