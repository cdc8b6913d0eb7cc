"""What a handler forks is a copy of the process that it runs in, down to the connections: it may work, but it speaks for nobody."""

from __future__ import annotations

import os
import sys

from rota.model.outcome import End, Errored

_generation = 0


def generation() -> int:
    """How many forks ago this process was the one that imported Rota. A handler's own copy has one more; asked for each job, so no system call."""
    return _generation


def _count() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count)


def leave_if_forked(original: int, end: End) -> None:
    """End this process where a handler came to its end in a copy that it forked, as Python ends a program; `original` is the generation of whoever
    called the handler. Going on, the copy would say a second time what the job came to, and run jobs that the original runs too."""
    if _generation == original:
        return
    status = 1
    try:
        status = _status(end)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # whatever the error, a hook or a stream of the application raises when it is shown
        os._exit(status)


def _status(end: End) -> int:
    match end:
        case Errored(SystemExit(code=code)) if code is None or isinstance(code, int):
            return (code or 0) & 0xFF
        case Errored(SystemExit(code=code)):
            sys.stderr.write(f"{code}\n")
            return 1
        case Errored(error):
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
    return 0
