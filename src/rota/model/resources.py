"""What it means when a machine has no more files, threads or memory for a process: nobody's mistake
in the code, so no traceback helps.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rota.errors import OutOfResources

_LACKS = {
    errno.EMFILE: "open files (`ulimit -n`)",
    errno.ENFILE: "open files on the whole machine",
    errno.ENOMEM: "memory",
}
_NO_THREAD = "can't start new thread"


def lack(error: BaseException) -> str | None:
    """What the machine does not give any more; None when the error says something else."""
    if isinstance(error, OSError) and error.errno in _LACKS:
        return _LACKS[error.errno]
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return "threads (`ulimit -u`, the tasks of a container) or memory for one"
    return None


def lack_of_files() -> str | None:
    """What keeps this process from opening one more file or connection; None when nothing does.

    For a library that does not say why it could not.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return lack(error)
    return None


@contextmanager
def told() -> Iterator[None]:
    """Raise OutOfResources for an error that says so."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        what = lack(error)
        if what is None:
            raise
        raise OutOfResources(what, str(error)) from error
