"""`rota work --reload`: runs a worker process again when Python files change."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from rota.declare.program import describe_exit, kill_at_hang_up
from rota.embedded import SESSION_VARIABLE
from rota.errors import ConfigurationError
from rota.model.failure import list_names
from rota.runtime.child_process import is_hang_up_ignored

logger = logging.getLogger("rota")

TURN_MS = 200
"""Milliseconds between checks whether the worker has ended by itself. A change is seen at once."""


class Reloader:
    """Runs `python -m rota` with these arguments, and again after each change below a directory.

    The first signal stops the worker and then the reloader; the second stops the worker now. The
    worker has its own session, so that a terminal does not signal it too.
    """

    def __init__(self, arguments: list[str], directory: Path) -> None:
        self._arguments = arguments
        self._directory = directory
        self._worker: subprocess.Popen[bytes] | None = None
        """None: the worker has ended, and the reloader waits for a change."""
        self._stopping = threading.Event()

    def run(self) -> None:
        """Return after a signal, when the worker has stopped.

        Raises:
            ConfigurationError: watchfiles is not installed.
        """
        try:
            from watchfiles import PythonFilter, watch  # noqa: PLC0415 - optional
        except ImportError:
            raise ConfigurationError(
                "--reload needs watchfiles: pip install 'rota[reload]'"
            ) from None
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
        for number in numbers[: 2 if is_hang_up_ignored() else 3]:
            signal.signal(number, self._handle_signal)
        watched, lifeline = os.pipe()
        has_started = False
        try:
            for changes in watch(
                self._directory,
                watch_filter=PythonFilter(),
                stop_event=self._stopping,
                rust_timeout=TURN_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
            ):
                if changes:
                    logger.info("%s changed: the worker restarts", self._name(changes))
                    self._stop()
                if changes or not has_started:  # from here on no change is missed
                    has_started = True
                    self._start(watched)
                self._note_end()
        finally:
            self._stop()
            os.close(lifeline)
            os.close(watched)

    def _start(self, watched: int) -> None:
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "rota", *self._arguments],
            start_new_session=True,
            env={SESSION_VARIABLE: str(os.getsid(0)), **os.environ},
            pass_fds=(watched,),
        )
        kill_at_hang_up(watched, self._worker.pid)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait()
            self._worker = None

    def _note_end(self) -> None:
        if self._worker is not None and (status := self._worker.poll()) is not None:
            self._worker = None
            logger.warning(
                "the worker %s: it starts again when a file changes", describe_exit(status)
            )

    def _handle_signal(self, *_: object) -> None:
        if self._stopping.is_set() and self._worker is not None:
            self._worker.terminate()  # the second one that it gets
        self._stopping.set()

    def _name(self, changes: Iterable[tuple[object, str]]) -> str:
        names = {str(Path(path).relative_to(self._directory)) for _, path in changes}
        return list_names(names, 3)
